// A JSON document as a value: object keys keep their order, integers of any size keep their digits.
// For configs, requests and templates; vocabularies and safetensors headers are read with simdjson
// where they lie.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace pewter {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;
  // An integer outside int64, as its decimal digits ("-"? digit+).
  struct BigInteger {
    std::string digits;
    bool operator==(const BigInteger&) const = default;
  };
  enum class Type { kNull, kBool, kInteger, kBigInteger, kFloat, kString, kArray, kObject };

  Json() = default;
  Json(std::nullptr_t) {}                                       // NOLINT: implicit on purpose
  Json(bool value) : value_(value) {}                           // NOLINT
  Json(int value) : value_(static_cast<int64_t>(value)) {}      // NOLINT
  Json(int64_t value) : value_(value) {}                        // NOLINT
  Json(double value) : value_(value) {}                         // NOLINT
  Json(BigInteger value) : value_(std::move(value)) {}          // NOLINT
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT
  Json(std::string value) : value_(std::move(value)) {}         // NOLINT
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT
  Json(Array value) : value_(std::move(value)) {}               // NOLINT
  Json(Object value) : value_(std::move(value)) {}              // NOLINT

  // Parses strict JSON (RFC 8259, UTF-8). Errors name the byte offset. Duplicate keys: the last one
  // wins, in the first one's place, unless reject_duplicate_keys. Passing one of the limits is an
  // error: nesting, keys of one object, and values in all (each takes memory, however short it is).
  struct ParseOptions {
    bool reject_duplicate_keys = false;
    int max_depth = 256;
    int64_t max_keys = INT64_MAX;
    int64_t max_values = INT64_MAX;
  };
  static Result<Json> parse(std::string_view text, const ParseOptions& options);
  static Result<Json> parse(std::string_view text) { return parse(text, ParseOptions{}); }

  Type type() const { return static_cast<Type>(value_.index()); }
  bool is_null() const { return type() == Type::kNull; }
  bool is_bool() const { return type() == Type::kBool; }
  bool is_integer() const { return type() == Type::kInteger; }
  bool is_number() const {
    return type() == Type::kInteger || type() == Type::kFloat || type() == Type::kBigInteger;
  }
  bool is_string() const { return type() == Type::kString; }
  bool is_array() const { return type() == Type::kArray; }
  bool is_object() const { return type() == Type::kObject; }

  // Accessors CHECK the type.
  bool as_bool() const { return get<bool>("bool"); }
  int64_t as_integer() const { return get<int64_t>("integer"); }
  double as_double() const;  // any number
  const BigInteger& as_big_integer() const { return get<BigInteger>("big integer"); }
  const std::string& as_string() const { return get<std::string>("string"); }
  const Array& as_array() const { return get<Array>("array"); }
  const Object& as_object() const { return get<Object>("object"); }
  Array& as_array() { return get<Array>("array"); }
  Object& as_object() { return get<Object>("object"); }

  // The member with this key, or nullptr when there is none or this is no object. Linear in the
  // keys.
  const Json* find(std::string_view key) const;
  // Sets or appends a member; this must be an object (or null, which becomes one).
  Json& set(std::string_view key, Json value);

  bool operator==(const Json& other) const = default;

  // Compact: {"a":1}. Spaced: {"a": 1, "b": 2}, Python's json.dumps with ensure_ascii=False. indent
  // >= 0 breaks lines. Floats print as Python's repr does (1.0, 1e-07); strings must be valid
  // UTF-8.
  struct DumpOptions {
    bool spaced = false;
    int indent = -1;
  };
  std::string dump(const DumpOptions& options) const;
  std::string dump() const { return dump(DumpOptions{}); }

 private:
  template <typename T>
  const T& get(const char* name) const {
    const T* value = std::get_if<T>(&value_);
    CHECK(value != nullptr, "JSON value is no ", name);
    return *value;
  }
  template <typename T>
  T& get(const char* name) {
    T* value = std::get_if<T>(&value_);
    CHECK(value != nullptr, "JSON value is no ", name);
    return *value;
  }

  std::variant<std::nullptr_t, bool, int64_t, BigInteger, double, std::string, Array, Object>
      value_ = nullptr;
};

// Appends text as a quoted JSON string; only ", \ and control characters are escaped.
void append_json_string(std::string& out, std::string_view text);
// Shortest text that reads back as the same double, in Python's repr style: 2.0, 1e-07, 100000.0,
// nan, inf.
std::string python_float_repr(double value);

}  // namespace pewter
