// JSON as expressions: what is the same in every schema.
//
// Behind a comma and inside brackets stands nothing, one space, or a line break with an
// indentation, behind a colon at most a space: a model may lay its answer out and cannot go on with
// blanks for ever.
#pragma once

#include <optional>

#include "base/json.h"
#include "grammar/expression.h"

namespace pewter::grammar {

// The characters of the ranges as a JSON string holds them: as they are, or escaped where they must
// be, in the one way that is usual.
Expr json_characters(const std::vector<CodePointRange>& ranges);
// Any character of a string, every escape included (surrogates in pairs only).
Expr any_json_character();
// "text", quoted.
Expr json_string_literal(std::string_view text);

class JsonRules {
 public:
  // characters: of strings that are not restricted otherwise; null: any.
  explicit JsonRules(Grammar& grammar, Expr characters = nullptr)
      : grammar_(grammar), characters_(std::move(characters)) {}

  // Each adds its rule to the grammar when it is first asked for.
  Expr blanks();  // nothing, a space, or a line break and an indentation
  Expr string();
  Expr number();
  Expr integer();
  Expr value();  // anything
  Expr object();
  Expr array();
  // This value and no other; numbers as they are written, and integers without a point as well.
  Expr constant(const Json& value);
  // "[" items "]" and "{" members "}"; may_be_empty: also without a list.
  Expr in_brackets(char open, Expr list, bool may_be_empty, char close);
  // , with blanks behind it.
  Expr comma();
  // key: value
  Expr member(Expr key, Expr value);

 private:
  Expr get(std::optional<RuleId>& id, const char* name, Expr (JsonRules::*body)());
  Expr blanks_body();
  Expr string_body();
  Expr number_body();
  Expr integer_body();
  Expr value_body();
  Expr object_body();
  Expr array_body();

  Grammar& grammar_;
  Expr characters_;
  std::optional<RuleId> blanks_, string_, number_, integer_, value_, object_, array_;
};

}  // namespace pewter::grammar
