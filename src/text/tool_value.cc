#include "text/tool_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/blanks.h"
#include "text/jinja/literals.h"

namespace pewter {
namespace {

constexpr int kDeepest = 64;

bool equals_any_case(std::string_view text, std::string_view lower) {
  return std::ranges::equal(text, lower, [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + ('a' - 'A')) : a) == b;
  });
}

std::optional<Json> read_integer(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size() - 1));
  const std::string digits = str_cat(negative && text != "0" ? "-" : "", text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc()) return Json(value);
  return Json(Json::BigInteger{digits});
}

std::optional<Json> read_number(std::string_view text) {
  if (std::optional<Json> integer = read_integer(text)) return integer;
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  constexpr double kExact = 1e15;  // integers below are exact, and print in full
  if (value == std::trunc(value) && std::abs(value) < kExact)
    return Json(static_cast<int64_t>(value));
  return Json(value);
}

std::optional<Json> read_boolean(std::string_view text) {
  if (text == "1" || equals_any_case(text, "true")) return Json(true);
  if (text == "0" || equals_any_case(text, "false")) return Json(false);
  return std::nullopt;
}

class PythonLiteral {
 public:
  explicit PythonLiteral(std::string_view text) : rest_(text) {}

  std::optional<Json> parse() {
    std::optional<Json> value = read(0);
    skip_blanks();
    return value && rest_.empty() ? value : std::nullopt;
  }

 private:
  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(kBlankBytes), rest_.size()));
  }
  bool take(char c) {
    skip_blanks();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::optional<Json> read(int depth) {
    skip_blanks();
    if (rest_.empty() || depth > kDeepest) return std::nullopt;
    const char first = rest_.front();
    if (first == '{') return read_dict(depth);
    if (first == '[') return read_list(']', depth);
    if (first == '(') return read_list(')', depth);
    if (first == '"' || first == '\'') return read_string();
    const size_t end = std::min(rest_.find_first_of(",:]}) \t\r\n"), rest_.size());
    const std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(end);
    if (word == "None" || word == "null") return Json();
    if (word == "True" || word == "true") return Json(true);
    if (word == "False" || word == "false") return Json(false);
    return read_number(word);
  }

  std::optional<Json> read_dict(int depth) {
    rest_.remove_prefix(1);
    Json dict(Json::Object{});
    while (!take('}')) {
      const std::optional<Json> key = read(depth + 1);
      if (!key || !key->is_string() || !take(':')) return std::nullopt;
      std::optional<Json> value = read(depth + 1);
      if (!value) return std::nullopt;
      dict.set(key->as_string(), *std::move(value));
      if (!take(',') && !rest_.starts_with('}')) return std::nullopt;
    }
    return dict;
  }

  std::optional<Json> read_list(char close, int depth) {
    rest_.remove_prefix(1);
    Json::Array list;
    while (!take(close)) {
      std::optional<Json> value = read(depth + 1);
      if (!value) return std::nullopt;
      list.push_back(*std::move(value));
      if (!take(',') && !rest_.starts_with(close)) return std::nullopt;
    }
    return Json(std::move(list));
  }

  std::optional<Json> read_string() {
    const char quote = rest_.front();
    size_t end = 1;
    while (end < rest_.size() && rest_[end] != quote && rest_[end] != '\n')
      end += rest_[end] == '\\' ? 2u : 1u;
    if (end >= rest_.size() || rest_[end] != quote) return std::nullopt;
    Result<std::string> text = jinja::unescape(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    if (!text) return std::nullopt;
    return Json(*std::move(text));
  }

  std::string_view rest_;
};

std::optional<Json> read_container(std::string_view text) {
  if (!text.starts_with('{') && !text.starts_with('[') && !text.starts_with('('))
    return std::nullopt;
  if (Result<Json> json = Json::parse(text, {.max_depth = kDeepest})) return *std::move(json);
  return parse_python_literal(text);
}

}  // namespace

std::optional<Json> parse_python_literal(std::string_view text) {
  return PythonLiteral(text).parse();
}

Json tool_value(std::string_view text, TypeSet types) {
  if (types.is_text()) return Json(text);
  const std::string_view value = trimmed(text);
  if (types.has(TypeSet::kNull) || !types.has(TypeSet::kString))
    if (equals_any_case(value, "null") || equals_any_case(value, "none")) return Json();
  if (types.has(TypeSet::kInteger)) {
    const std::optional<Json> number = read_number(value);  // 4.0 is an integer too
    if (number && number->type() != Json::Type::kFloat) return *number;
  }
  if (types.has(TypeSet::kNumber))
    if (std::optional<Json> number = read_number(value)) return *std::move(number);
  if (types.has(TypeSet::kBoolean))
    if (std::optional<Json> boolean = read_boolean(value)) return *std::move(boolean);
  if (types.has(TypeSet::kObject) || types.has(TypeSet::kArray))
    if (std::optional<Json> container = read_container(value))
      if (types.has(container->is_object() ? TypeSet::kObject : TypeSet::kArray))
        return *std::move(container);
  return Json(text);
}

}  // namespace pewter
