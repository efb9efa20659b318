// What the tools of a request declare: names of functions, and for each of their parameters the
// JSON types its schema admits. Turning a model's raw text into a value of such a type is
// tool_value.h's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace pewter {

// A set of JSON types.
class TypeSet {
 public:
  enum Type : uint8_t {
    kNull = 1,
    kInteger = 2,
    kNumber = 4,
    kBoolean = 8,
    kObject = 16,
    kArray = 32,
    kString = 64,
  };
  constexpr TypeSet() = default;
  constexpr TypeSet(Type type) : bits_(type) {}  // NOLINT: implicit on purpose

  bool has(Type type) const { return (bits_ & type) != 0; }
  bool empty() const { return bits_ == 0; }
  // Nothing but text is wanted: whatever a model writes is the value as it stands.
  bool is_text() const { return bits_ == 0 || bits_ == kString; }
  void add(TypeSet other) { bits_ = static_cast<uint8_t>(bits_ | other.bits_); }
  bool operator==(const TypeSet&) const = default;

 private:
  uint8_t bits_ = 0;
};

// The types a JSON schema admits: "type", those of "enum" and "const" values, and the union over
// anyOf, oneOf and allOf. References are followed within `root`. Empty when it names none.
TypeSet schema_types(const Json& schema, const Json& root);

class ToolSchemas {
 public:
  ToolSchemas() = default;
  // `tools`: a list of {"type": "function", "function": {name, parameters}}, or of the inner
  // objects ("input_schema" counts as "parameters"). Entries without a name declare nothing.
  explicit ToolSchemas(const Json& tools);

  bool declares(std::string_view function) const { return find(function) != nullptr; }
  // False when the function or the parameter is unknown.
  bool declares(std::string_view function, std::string_view parameter) const;
  // Empty when unknown.
  TypeSet types(std::string_view function, std::string_view parameter) const;

 private:
  struct Parameter {
    std::string name;
    TypeSet types;
  };
  struct Function {
    std::string name;
    std::vector<Parameter> parameters;
  };
  const Function* find(std::string_view function) const;

  std::vector<Function> functions_;
};

}  // namespace pewter
