#include "grammar/json_text.h"

#include <array>

namespace pewter::grammar {
namespace {

constexpr uint32_t kMostIndentation = 24, kMostTabs = 8;

ByteSet bytes_of(std::string_view text) {
  ByteSet set;
  for (const char c : text) set.set(static_cast<uint8_t>(c));
  return set;
}
Expr digit() { return byte_range('0', '9'); }
Expr digits() { return repeat(digit(), 1, kUnlimited); }
Expr hex_digit() { return byte_of(bytes_of("0123456789abcdefABCDEF")); }

// \b and its like; 0 where a control character has no letter.
char short_escape(char32_t c) {
  switch (c) {
    case '"':
    case '\\':
      return static_cast<char>(c);
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return 0;
  }
}

Expr hex_value(unsigned value) {
  constexpr std::string_view kLower = "0123456789abcdef", kUpper = "0123456789ABCDEF";
  return byte_of(bytes_of(std::string{kLower[value], kUpper[value]}));
}

}  // namespace

Expr json_characters(const std::vector<CodePointRange>& ranges) {
  std::vector<CodePointRange> plain;
  std::vector<Expr> parts;
  for (const CodePointRange& range : normalised(ranges)) {
    char32_t next = range.first;
    for (char32_t c = range.first; c <= range.last && c <= '\\'; ++c) {
      if (c >= 0x20 && c != '"' && c != '\\') continue;
      if (c > next) plain.push_back({next, c - 1});
      next = c + 1;
      if (const char letter = short_escape(c))
        parts.push_back(literal(std::string{'\\', letter}));
      else
        parts.push_back(sequence({literal("\\u00"), hex_value(c >> 4), hex_value(c & 15)}));
    }
    if (next <= range.last) plain.push_back({next, range.last});
  }
  parts.push_back(characters(plain));
  return choice(std::move(parts));
}

Expr any_json_character() {
  const Expr d = byte_of(bytes_of("dD")), hex = hex_digit();
  const Expr high = byte_of(bytes_of("89abAB")), low = byte_of(bytes_of("cdefCDEF"));
  ByteSet not_d = bytes_of("0123456789abcefABCEF");
  return choice({
      characters(complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}})),
      sequence({literal("\\"), byte_of(bytes_of("\"\\/bfnrt"))}),
      sequence({literal("\\u"), byte_of(not_d), hex, hex, hex}),
      sequence({literal("\\u"), d, byte_range('0', '7'), hex, hex}),
      sequence({literal("\\u"), d, high, hex, hex, literal("\\u"), d, low, hex, hex}),
  });
}

Expr json_string_literal(std::string_view text) {
  std::string quoted;
  append_json_string(quoted, text);
  return literal(quoted);
}

Expr JsonRules::get(std::optional<RuleId>& id, const char* name, Expr (JsonRules::*body)()) {
  if (!id) {
    id = grammar_.add(name);
    const Expr expr = (this->*body)();  // may add rules
    grammar_.rules[*id].body = expr;
  }
  return rule(*id);
}

Expr JsonRules::blanks() { return get(blanks_, "blanks", &JsonRules::blanks_body); }
Expr JsonRules::string() { return get(string_, "string", &JsonRules::string_body); }
Expr JsonRules::number() { return get(number_, "number", &JsonRules::number_body); }
Expr JsonRules::integer() { return get(integer_, "integer", &JsonRules::integer_body); }
Expr JsonRules::value() { return get(value_, "value", &JsonRules::value_body); }
Expr JsonRules::object() { return get(object_, "object", &JsonRules::object_body); }
Expr JsonRules::array() { return get(array_, "array", &JsonRules::array_body); }

Expr JsonRules::blanks_body() {
  return optional(
      choice({literal(" "), sequence({literal("\n"), choice({
                                                         repeat(literal(" "), 0, kMostIndentation),
                                                         repeat(literal("\t"), 1, kMostTabs),
                                                     })})}));
}

Expr JsonRules::string_body() {
  return sequence({literal("\""),
                   characters_ ? characters_ : repeat(any_json_character(), 0, kUnlimited),
                   literal("\"")});
}

Expr JsonRules::integer_body() {
  return sequence(
      {optional(literal("-")),
       choice({literal("0"), sequence({byte_range('1', '9'), repeat(digit(), 0, kUnlimited)})})});
}

Expr JsonRules::number_body() {
  return sequence(
      {integer_body(), optional(sequence({literal("."), digits()})),
       optional(sequence({byte_of(bytes_of("eE")), optional(byte_of(bytes_of("+-"))), digits()}))});
}

Expr JsonRules::value_body() {
  return choice(
      {object(), array(), string(), number(), literal("true"), literal("false"), literal("null")});
}

Expr JsonRules::comma() { return sequence({literal(","), blanks()}); }

Expr JsonRules::member(Expr key, Expr value) {
  return sequence({std::move(key), literal(":"), optional(literal(" ")), std::move(value)});
}

Expr JsonRules::in_brackets(char open, Expr list, bool may_be_empty, char close) {
  const Expr filled = sequence({blanks(), std::move(list)});
  return sequence({literal(std::string{open}), may_be_empty ? optional(filled) : filled, blanks(),
                   literal(std::string{close})});
}

Expr JsonRules::object_body() {
  const Expr one = member(string(), value());
  return in_brackets('{', sequence({one, repeat(sequence({comma(), one}), 0, kUnlimited)}), true,
                     '}');
}

Expr JsonRules::array_body() {
  const Expr one = value();
  return in_brackets('[', sequence({one, repeat(sequence({comma(), one}), 0, kUnlimited)}), true,
                     ']');
}

namespace {

// Without parts it is no list at all.
Expr list_of(std::vector<Expr> parts) {
  return parts.empty() ? nothing() : sequence(std::move(parts));
}

}  // namespace

Expr JsonRules::constant(const Json& value) {
  std::vector<Expr> list;
  switch (value.type()) {
    case Json::Type::kString:
      return json_string_literal(value.as_string());
    case Json::Type::kArray:
      for (const Json& item : value.as_array()) {
        if (!list.empty()) list.push_back(comma());
        list.push_back(constant(item));
      }
      return in_brackets('[', list_of(std::move(list)), value.as_array().empty(), ']');
    case Json::Type::kObject:
      for (const auto& [key, item] : value.as_object()) {
        if (!list.empty()) list.push_back(comma());
        list.push_back(member(json_string_literal(key), constant(item)));
      }
      return in_brackets('{', list_of(std::move(list)), value.as_object().empty(), '}');
    case Json::Type::kFloat: {
      const std::string text = value.dump();
      if (text.ends_with(".0") && text.find('e') == std::string::npos)
        return choice({literal(text), literal(text.substr(0, text.size() - 2))});
      return literal(text);
    }
    default:
      return literal(value.dump());
  }
}

}  // namespace pewter::grammar
