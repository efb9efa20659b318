// Reading a config.json: values of the right type in a sane range, or an error that names the key.
#pragma once

#include <algorithm>
#include <cmath>

#include "base/json.h"

namespace pewter::config_fields {

inline Error wrong(std::string_view key, std::string_view what,
                   ErrorCode code = ErrorCode::kCorruptData) {
  return Error{code, str_cat("config.json: ", key, " ", what)};
}
inline Error unsupported(std::string_view key, std::string_view what) {
  return wrong(key, what, ErrorCode::kUnsupported);
}

// nullptr for a key that is missing or null: configs write both for "not set".
inline const Json* get(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

inline Result<int64_t> size_of(const Json& object, std::string_view key, int64_t limit) {
  const Json* value = get(object, key);
  if (value == nullptr) return wrong(key, "is missing");
  if (!value->is_integer() || value->as_integer() < 1 || value->as_integer() > limit)
    return wrong(key, str_cat("is ", value->dump(), ", want an integer in 1 … ", limit));
  return value->as_integer();
}

// An integer that may be missing or 0.
inline Result<int64_t> count_of(const Json& object, std::string_view key, int64_t limit) {
  const Json* value = get(object, key);
  if (value == nullptr || (value->is_integer() && value->as_integer() == 0)) return int64_t{0};
  return size_of(object, key, limit);
}

inline Result<double> number_of(const Json& object, std::string_view key) {
  const Json* value = get(object, key);
  if (value == nullptr) return wrong(key, "is missing");
  if (!value->is_number() || !std::isfinite(value->as_double()) || value->as_double() <= 0)
    return wrong(key, str_cat("is ", value->dump(), ", want a number above 0"));
  return value->as_double();
}

// What Pewter only runs with one value of; missing means that value.
inline Status require_bool(const Json& object, std::string_view key, bool wanted) {
  const Json* value = get(object, key);
  if (value == nullptr) return {};
  if (!value->is_bool()) return wrong(key, str_cat("is ", value->dump(), ", want true or false"));
  if (value->as_bool() != wanted)
    return unsupported(key, str_cat("is ", value->as_bool(), ": only ", wanted, " is supported"));
  return {};
}
inline Status require_text(const Json& object, std::string_view key,
                           std::initializer_list<std::string_view> wanted) {
  const Json* value = get(object, key);
  if (value == nullptr) return {};
  if (!value->is_string()) return wrong(key, str_cat("is ", value->dump(), ", want text"));
  if (std::ranges::find(wanted, value->as_string()) == wanted.end())
    return unsupported(
        key, str_cat("\"", value->as_string(), "\" is not supported; ", *wanted.begin(), " is"));
  return {};
}

}  // namespace pewter::config_fields
