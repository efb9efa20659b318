#include "server/request/fields.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/utf8.h"

namespace pewter::server {
namespace {

// Far more than any request needs; what lies beyond costs memory out of proportion to its bytes.
constexpr Json::ParseOptions kLimits{.max_depth = 64, .max_keys = 10'000, .max_values = 4'000'000};
// Integers up to here survive as doubles.
constexpr double kExactDouble = 9007199254740992.0;

Error wrong_kind(const std::string& path, const Json& value, std::string_view want) {
  return bad_request(str_cat(path, ": want ", want, ", not ", kind_name(value)));
}

bool says_nothing(const Json& value) {
  switch (value.type()) {
    case Json::Type::kBool:
      return !value.as_bool();
    case Json::Type::kString:
      return value.as_string().empty();
    case Json::Type::kArray:
      return value.as_array().empty();
    case Json::Type::kObject:
      return value.as_object().empty();
    default:
      return value.is_null();
  }
}

}  // namespace

std::string_view kind_name(const Json& value) {
  switch (value.type()) {
    case Json::Type::kNull:
      return "null";
    case Json::Type::kBool:
      return "true or false";
    case Json::Type::kInteger:
    case Json::Type::kBigInteger:
    case Json::Type::kFloat:
      return "a number";
    case Json::Type::kString:
      return "a string";
    case Json::Type::kArray:
      return "a list";
    case Json::Type::kObject:
      return "an object";
  }
  return "nothing";
}

Result<Json> parse_body(std::string_view body) {
  if (const size_t broken = find_invalid_utf8(body); broken != std::string_view::npos)
    return bad_request(str_cat("the body is not valid UTF-8 at byte ", broken));
  Result<Json> json = Json::parse(body, kLimits);
  if (!json) {
    // "… at line 1, column 5: syntax error … last read: 'client's bytes'": the place is enough.
    const std::string& message = json.error().message;
    const size_t column = message.find("column ");
    if (column == std::string::npos) return bad_request("the body: " + message);
    const size_t end = message.find_first_not_of("0123456789", column + 7);
    return bad_request("the body is " + message.substr(0, end));
  }
  if (!json->is_object())
    return bad_request(str_cat("the body is ", kind_name(*json), ", want a JSON object"));
  return json;
}

Result<Fields> Fields::of(const Json& object, std::string path) {
  if (!object.is_object()) return wrong_kind(path.empty() ? "the body" : path, object, "an object");
  return Fields(object, std::move(path));
}

std::string Fields::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : str_cat(path_, ".", key);
}

const Json* Fields::take(std::string_view key) {
  seen_.emplace(key);
  read_.emplace(key);
  const Json* value = object_->find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Status Fields::read(std::string_view key, bool& into) {
  std::optional<bool> value;
  TRY(read(key, value));
  if (value) into = *value;
  return {};
}

Status Fields::read(std::string_view key, std::optional<bool>& into) {
  const Json* value = take(key);
  if (value == nullptr) return {};
  if (!value->is_bool()) return wrong_kind(path_of(key), *value, "true or false");
  into = value->as_bool();
  return {};
}

Status Fields::read(std::string_view key, std::string& into) {
  std::optional<std::string> value;
  TRY(read(key, value));
  if (value) into = std::move(*value);
  return {};
}

Status Fields::read(std::string_view key, std::optional<std::string>& into) {
  const Json* value = take(key);
  if (value == nullptr) return {};
  if (!value->is_string()) return wrong_kind(path_of(key), *value, "a string");
  into = value->as_string();
  return {};
}

Result<int64_t> integer_value(const Json& value, const std::string& path,
                              Fields::IntegerRange range) {
  int64_t number = 0;
  bool fits = true;
  if (value.is_integer()) {
    number = value.as_integer();
  } else if (value.type() == Json::Type::kFloat &&
             std::trunc(value.as_double()) == value.as_double()) {
    fits = std::abs(value.as_double()) <= kExactDouble;
    if (fits) number = static_cast<int64_t>(value.as_double());
  } else if (value.type() == Json::Type::kBigInteger) {
    fits = false;
  } else {
    return wrong_kind(path, value, "an integer");
  }
  if (fits && number >= range.least && number <= range.most) return number;
  const std::string most = range.most == INT64_MAX ? "" : str_cat(" to ", range.most);
  return bad_request(str_cat(path, ": ", fits ? str_cat(number) : "the number",
                             " is outside the range from ", range.least,
                             most.empty() ? " on" : most));
}

Status Fields::read(std::string_view key, std::optional<int64_t>& into, IntegerRange range) {
  const Json* value = take(key);
  if (value == nullptr) return {};
  TRY_ASSIGN(into, integer_value(*value, path_of(key), range));
  return {};
}

Status Fields::read(std::string_view key, int64_t& into, IntegerRange range) {
  std::optional<int64_t> value;
  TRY(read(key, value, range));
  if (value) into = *value;
  return {};
}

Status Fields::read(std::string_view key, float& into) {
  const Json* value = take(key);
  if (value == nullptr) return {};
  if (!value->is_number()) return wrong_kind(path_of(key), *value, "a number");
  if (!(std::abs(value->as_double()) <= std::numeric_limits<float>::max()))
    return bad_request(path_of(key) + ": the number is too large");
  into = static_cast<float>(value->as_double());
  return {};
}

Status Fields::read_strings(std::string_view key, std::vector<std::string>& into, size_t most) {
  const Json* value = take(key);
  if (value == nullptr) return {};
  if (value->is_string()) {
    into = {value->as_string()};
    return {};
  }
  if (!value->is_array()) return wrong_kind(path_of(key), *value, "a string or a list of strings");
  if (value->as_array().size() > most)
    return bad_request(str_cat(path_of(key), ": more than ", most, " strings"));
  into.clear();
  for (const Json& item : value->as_array()) {
    if (!item.is_string())
      return wrong_kind(str_cat(path_of(key), "[", into.size(), "]"), item, "a string");
    into.push_back(item.as_string());
  }
  return {};
}

Status Fields::read_ids(std::string_view key, std::vector<int32_t>& into) {
  const Json* value = take(key);
  if (value == nullptr) return {};
  if (!value->is_array()) return wrong_kind(path_of(key), *value, "a list of token ids");
  into.clear();
  for (const Json& item : value->as_array()) {
    TRY_ASSIGN(const int64_t id, integer_value(item, str_cat(path_of(key), "[", into.size(), "]"),
                                               {.least = 0, .most = INT32_MAX}));
    into.push_back(static_cast<int32_t>(id));
  }
  return {};
}

void Fields::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) seen_.emplace(key);
}

Status Fields::refuse(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    seen_.emplace(key);
    const Json* value = object_->find(key);
    if (value != nullptr && !says_nothing(*value))
      return Error{ErrorCode::kUnsupported,
                   str_cat(path_of(key), ": this server does not support it yet")};
  }
  return {};
}

std::vector<std::string> Fields::unread() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : object_->as_object())
    if (!seen_.contains(key)) names.push_back(path_of(key));
  return names;
}

}  // namespace pewter::server
