#include "text/json_call.h"

#include <algorithm>

#include "base/json.h"
#include "text/tool_tags.h"

namespace pewter {
namespace {

constexpr int kDeepest = 128;
constexpr Json::ParseOptions kLimits = {.max_depth = kDeepest};

// {} for what is left out, nothing for what is no object.
std::optional<Json> arguments_of(const Json* value) {
  if (value == nullptr || value->is_null()) return Json(Json::Object{});
  if (value->is_object()) return *value;
  if (!value->is_string()) return std::nullopt;
  const std::string& text = value->as_string();
  if (is_blank(text)) return Json(Json::Object{});
  Result<Json> parsed = Json::parse(text, kLimits);
  if (!parsed || !parsed->is_object()) return std::nullopt;
  return *std::move(parsed);
}

// Reads single tokens off the front of a beginning of JSON.
class Front {
 public:
  explicit Front(std::string_view text) : rest_(text) {}
  bool take(char c) {
    skip_blanks();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::optional<std::string> take_string() {
    skip_blanks();
    if (!rest_.starts_with('"')) return std::nullopt;
    size_t end = 1;
    while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2u : 1u;
    if (end >= rest_.size()) return std::nullopt;
    const Result<Json> value = Json::parse(rest_.substr(0, end + 1));
    rest_.remove_prefix(end + 1);
    if (!value) return std::nullopt;
    return value->as_string();
  }
  std::string_view rest() {
    skip_blanks();
    return rest_;
  }

 private:
  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(kBlankBytes), rest_.size()));
  }
  std::string_view rest_;
};

}  // namespace

JsonObjectScanner::Found JsonObjectScanner::scan(std::string_view text) {
  for (; at_ < text.size(); ++at_) {
    const char c = text[at_];
    if (in_string_) {
      if (static_cast<unsigned char>(c) < 0x20) return Found::kBroken;
      if (escaped_)
        escaped_ = false;
      else if (c == '\\')
        escaped_ = true;
      else if (c == '"')
        in_string_ = false;
      continue;
    }
    if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      if (++depth_ > kDeepest) return Found::kBroken;
    } else if (c == '}' || c == ']') {
      if (--depth_ > 0) continue;
      ++at_;
      return Found::kComplete;
    } else if (std::string_view(" \t\r\n:,+-.0123456789eEtrufalsn").find(c) ==
               std::string_view::npos) {
      return Found::kBroken;
    }
  }
  return Found::kUnsure;
}

std::optional<JsonCall> parse_json_call(std::string_view object) {
  const Result<Json> json = Json::parse(object, kLimits);
  if (!json || !json->is_object()) return std::nullopt;
  const Json* name = json->find("name");
  if (name == nullptr || !name->is_string() || name->as_string().empty()) return std::nullopt;
  const Json* value = json->find("arguments");
  const std::optional<Json> arguments =
      arguments_of(value != nullptr ? value : json->find("parameters"));
  if (!arguments) return std::nullopt;
  return JsonCall{.name = name->as_string(), .arguments = arguments->dump({.spaced = true})};
}

std::optional<JsonCall> parse_cut_json_call(std::string_view beginning) {
  Front front(beginning);
  if (!front.take('{') || front.take_string() != "name" || !front.take(':')) return std::nullopt;
  const std::optional<std::string> name = front.take_string();
  if (!name || name->empty() || !front.take(',')) return std::nullopt;
  const std::optional<std::string> key = front.take_string();
  if ((key != "arguments" && key != "parameters") || !front.take(':')) return std::nullopt;
  std::string_view arguments = front.rest();
  if (!arguments.starts_with('{')) return std::nullopt;
  // The object's own end would make it look whole.
  JsonObjectScanner scanner;
  if (scanner.scan(arguments) == JsonObjectScanner::Found::kComplete)
    arguments = arguments.substr(0, scanner.size() - 1);
  return JsonCall{.name = *name, .arguments = std::string(arguments)};
}

}  // namespace pewter
