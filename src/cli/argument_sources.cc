#include "cli/argument_sources.h"

#include <algorithm>
#include <set>

#include "base/blanks.h"
#include "base/json.h"
#include "base/str_cat.h"

namespace pewter {
namespace {

// Cuts a comment: a '#' at the start or behind a blank, outside quotes.
std::string_view without_comment(std::string_view line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const bool is_escape = quote == '"' ? c == '\\' : quote != 0 && line.substr(i, 2) == "''";
    if (is_escape)
      ++i;
    else if (quote != 0)
      quote = c == quote ? char{0} : quote;
    else if (c == '"' || (c == '\'' && (i == 0 || line[i - 1] == ' ')))
      quote = c;
    else if (c == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t'))
      return line.substr(0, i);
  }
  return line;
}

// A YAML scalar: in double quotes as in JSON, in single ones with '' for ', or as it stands.
Result<std::string> scalar(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('"')) {
    const Result<Json> json = Json::parse(text);
    if (json && json->is_string()) return json->as_string();
    return Error{ErrorCode::kInvalidArgument, str_cat("the quotes of ", text, " do not match")};
  }
  if (!text.starts_with('\'')) return std::string(text);
  std::string out;
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    out += text[i];
    if (text[i] == '\'' && text[i + 1] == '\'') ++i;
  }
  if (text.size() < 2 || !text.ends_with('\''))
    return Error{ErrorCode::kInvalidArgument, str_cat("the quotes of ", text, " do not match")};
  return out;
}

// One or more values: [a, b] has several.
Result<Arguments> values_of(std::string_view text) {
  Arguments values;
  text = trimmed(text);
  if (!text.starts_with('[')) {
    TRY_ASSIGN(values.emplace_back(), scalar(text));
    return values;
  }
  if (const Result<Json> json = Json::parse(text); json && json->is_array()) {
    for (const Json& item : json->as_array())
      values.push_back(item.is_string() ? item.as_string() : item.dump());
    return values;
  }
  if (!text.ends_with(']'))
    return Error{ErrorCode::kInvalidArgument, "a list that does not end in this line"};
  for (std::string_view rest = text.substr(1, text.size() - 2); !trimmed(rest).empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    TRY_ASSIGN(values.emplace_back(), scalar(rest.substr(0, comma)));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return values;
}

bool is_null(std::string_view text) { return text.empty() || text == "null" || text == "~"; }

// Reads line by line: a key at the start of a line, and what belongs to it below.
class ConfigReader {
 public:
  explicit ConfigReader(const Arguments& known) : known_(known) {}

  Status read(std::string_view line);
  Arguments finish() {
    end_key();
    return std::move(arguments_);
  }

 private:
  Status read_key(std::string_view line);
  Status read_below(std::string_view line);
  void add(const std::string& value) { arguments_.push_back(str_cat(flag_, "=", value)); }
  void end_key() {
    if (object_.is_object()) add(object_.dump());
    object_ = Json();
  }

  const Arguments& known_;
  Arguments arguments_;
  std::string flag_;      // of the last key
  bool is_open_ = false;  // which had no value in its line
  Json object_;           // of the lines below it
};

Error bad(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

Status ConfigReader::read(std::string_view line) {
  line = without_comment(line);
  const std::string_view text = trimmed(line);
  if (text.empty() || text == "---") return {};
  const bool is_below = line.front() == ' ' || line.front() == '\t' || text.starts_with("- ");
  return is_below ? read_below(text) : read_key(text);
}

Status ConfigReader::read_key(std::string_view line) {
  end_key();
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return bad("want a line like \"max-model-len: 64k\"");
  TRY_ASSIGN(std::string key, scalar(line.substr(0, colon)));
  std::ranges::replace(key, '_', '-');
  flag_ = key.starts_with("--") ? key : "--" + key;
  if (std::ranges::find(known_, flag_) == known_.end())
    return bad(str_cat("there is no flag ", flag_));
  const std::string_view value = trimmed(line.substr(colon + 1));
  is_open_ = value.empty();
  if (is_null(value)) return {};
  const Result<Arguments> values = values_of(value);
  if (!values) return values.error();
  for (const std::string& one : *values) add(one);
  return {};
}

Status ConfigReader::read_below(std::string_view line) {
  if (!is_open_) return bad("indented, but the key above has a value already");
  if (line.starts_with("- ")) {
    TRY_ASSIGN(const std::string item, scalar(line.substr(2)));
    add(item);
    return {};
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return bad("want \"- item\" or \"key: value\" below a key");
  TRY_ASSIGN(const std::string key, scalar(line.substr(0, colon)));
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (const Result<Json> json = Json::parse(value); json) {
    object_.set(key, *json);
  } else {
    TRY_ASSIGN(const std::string text, scalar(value));
    object_.set(key, text);
  }
  return {};
}

std::string_view flag_of(std::string_view argument) {
  return argument.substr(0, std::min(argument.find('='), argument.size()));
}

}  // namespace

Result<Arguments> config_arguments(std::string_view text, const Arguments& known) {
  ConfigReader reader(known);
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (const Status status = reader.read(line); !status)
      return bad(str_cat("line ", number, ": ", status.error().message));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.finish();
}

Arguments environment_arguments(const Arguments& known,
                                const std::function<const char*(const char*)>& variable) {
  Arguments arguments;
  for (const std::string& flag : known) {
    if (!flag.starts_with("--")) continue;
    std::string name = "PEWTER_" + flag.substr(2);
    std::ranges::transform(name, name.begin(), [](char c) {
      if (c == '-') return '_';
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
    const char* value = variable(name.c_str());
    if (value != nullptr && *value != '\0') arguments.push_back(str_cat(flag, "=", value));
  }
  return arguments;
}

std::string value_of(std::string_view flag, const Arguments& arguments) {
  std::string value;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") break;
    if (flag_of(arguments[i]) != flag) continue;
    if (arguments[i].size() > flag.size())
      value = arguments[i].substr(flag.size() + 1);
    else if (i + 1 < arguments.size())
      value = arguments[i + 1];
  }
  return value;
}

Arguments with_defaults(Arguments arguments, const Arguments& lower) {
  std::set<std::string, std::less<>> named;
  for (const std::string& argument : arguments) named.emplace(flag_of(argument));
  for (const std::string& argument : lower)
    if (!named.contains(flag_of(argument))) arguments.push_back(argument);
  return arguments;
}

}  // namespace pewter
