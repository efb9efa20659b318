#include "text/tool_schema.h"

#include <algorithm>
#include <charconv>

namespace pewter {
namespace {

// Deeper nests of anyOf and $ref name no further types; it also ends references in circles.
constexpr int kDeepest = 16;

TypeSet type_named(std::string_view name) {
  if (name == "null") return TypeSet::kNull;
  if (name == "integer") return TypeSet::kInteger;
  if (name == "number") return TypeSet::kNumber;
  if (name == "boolean") return TypeSet::kBoolean;
  if (name == "object") return TypeSet::kObject;
  if (name == "array") return TypeSet::kArray;
  if (name == "string") return TypeSet::kString;
  return {};
}

TypeSet type_of(const Json& value) {
  switch (value.type()) {
    case Json::Type::kNull:
      return TypeSet::kNull;
    case Json::Type::kBool:
      return TypeSet::kBoolean;
    case Json::Type::kInteger:
    case Json::Type::kBigInteger:
      return TypeSet::kInteger;
    case Json::Type::kFloat:
      return TypeSet::kNumber;
    case Json::Type::kString:
      return TypeSet::kString;
    case Json::Type::kArray:
      return TypeSet::kArray;
    case Json::Type::kObject:
      return TypeSet::kObject;
  }
  return {};
}

// "#/$defs/Colour" inside root; nullptr when it leads nowhere.
const Json* follow(std::string_view reference, const Json& root) {
  if (!reference.starts_with('#')) return nullptr;
  reference.remove_prefix(1);
  const Json* at = &root;
  while (!reference.empty() && at != nullptr) {
    if (!reference.starts_with('/')) return nullptr;
    reference.remove_prefix(1);
    const std::string_view part = reference.substr(0, reference.find('/'));
    reference.remove_prefix(part.size());
    std::string key;
    for (size_t i = 0; i < part.size(); ++i) {
      const std::string_view escape = part.substr(i, 2);
      key += escape == "~0" ? '~' : escape == "~1" ? '/' : part[i];
      if (escape == "~0" || escape == "~1") ++i;
    }
    if (!at->is_array()) {
      at = at->find(key);
      continue;
    }
    size_t index = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
    const bool good = error == std::errc() && end == key.data() + key.size();
    at = good && index < at->as_array().size() ? &at->as_array()[index] : nullptr;
  }
  return at;
}

void add_types(const Json& schema, const Json& root, int depth, TypeSet& into) {
  if (!schema.is_object() || depth > kDeepest) return;
  TypeSet own;
  if (const Json* type = schema.find("type")) {
    if (type->is_string()) own.add(type_named(type->as_string()));
    if (type->is_array())
      for (const Json& one : type->as_array())
        if (one.is_string()) own.add(type_named(one.as_string()));
  }
  if (own.empty()) {
    if (const Json* values = schema.find("enum"); values != nullptr && values->is_array())
      for (const Json& value : values->as_array()) own.add(type_of(value));
    if (const Json* value = schema.find("const")) own.add(type_of(*value));
  }
  for (const char* name : {"anyOf", "oneOf", "allOf"})
    if (const Json* list = schema.find(name); list != nullptr && list->is_array())
      for (const Json& one : list->as_array()) add_types(one, root, depth + 1, own);
  if (const Json* reference = schema.find("$ref"); reference != nullptr && reference->is_string())
    if (const Json* target = follow(reference->as_string(), root))
      add_types(*target, root, depth + 1, own);
  if (own.empty() && schema.find("properties") != nullptr) own.add(TypeSet::kObject);
  if (own.empty() && schema.find("items") != nullptr) own.add(TypeSet::kArray);
  into.add(own);
}

}  // namespace

TypeSet schema_types(const Json& schema, const Json& root) {
  TypeSet types;
  add_types(schema, root, 0, types);
  return types;
}

ToolSchemas::ToolSchemas(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools.as_array()) {
    const Json* inner = tool.find("function");
    const Json& function = inner != nullptr && inner->is_object() ? *inner : tool;
    const Json* name = function.find("name");
    if (name == nullptr || !name->is_string() || name->as_string().empty()) continue;
    Function declared{.name = name->as_string(), .parameters = {}};
    const Json* schema = function.find("parameters");
    if (schema == nullptr) schema = function.find("input_schema");
    const Json* properties = schema != nullptr ? schema->find("properties") : nullptr;
    if (properties != nullptr && properties->is_object())
      for (const auto& [key, property] : properties->as_object())
        declared.parameters.push_back({.name = key, .types = schema_types(property, *schema)});
    functions_.push_back(std::move(declared));
  }
}

const ToolSchemas::Function* ToolSchemas::find(std::string_view function) const {
  const auto found = std::ranges::find(functions_, function, &Function::name);
  return found == functions_.end() ? nullptr : &*found;
}

bool ToolSchemas::declares(std::string_view function, std::string_view parameter) const {
  const Function* found = find(function);
  return found != nullptr && std::ranges::find(found->parameters, parameter, &Parameter::name) !=
                                 found->parameters.end();
}

TypeSet ToolSchemas::types(std::string_view function, std::string_view parameter) const {
  const Function* found = find(function);
  if (found == nullptr) return {};
  const auto at = std::ranges::find(found->parameters, parameter, &Parameter::name);
  return at == found->parameters.end() ? TypeSet() : at->types;
}

}  // namespace pewter
