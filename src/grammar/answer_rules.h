// What a request asks of its answer: the input of grammar_compiler.h.
#pragma once

#include "base/json.h"

namespace pewter::grammar {

struct ToolCallRules {
  Json tools;             // as a request has them: {"type": "function", "function": {…}}
  bool required = false;  // at least one call, and no text; otherwise text with calls in it
  std::string named;      // the one function that may be called; "": any
  bool parallel = true;   // calls may follow one another
  bool operator==(const ToolCallRules&) const = default;
};

struct AnswerRules {
  enum class Kind : uint8_t {
    kJsonObject,  // any object
    kJsonSchema,  // json: the schema
    kRegex,       // text: an expression of the whole answer
    kChoice,      // json: a list of texts
    kEbnf,        // text: ebnf.h
    kToolCalls,   // tools, and nothing else
    kTaggedText,  // json: tagged_text.h
  };
  Kind kind = Kind::kJsonObject;
  Json json;
  std::string text;
  ToolCallRules tools;  // calls that may be made in place of the answer, if there are tools
  bool operator==(const AnswerRules&) const = default;
};

}  // namespace pewter::grammar
