// SchemaReader's reading of keywords, one by one, into the node that they are about.
#include <algorithm>
#include <array>
#include <cmath>

#include "grammar/lookahead.h"
#include "grammar/nfa.h"
#include "grammar/regex.h"
#include "grammar/schema_node.h"

namespace pewter::grammar {
namespace {

// Keywords that restrict values and that the grammar cannot follow.
constexpr std::array<std::string_view, 2> kUnsupported = {"unevaluatedItems", "$dynamicRef"};

std::optional<uint8_t> type_bits(std::string_view name) {
  if (name == "null") return SchemaNode::kNull;
  if (name == "boolean") return SchemaNode::kBoolean;
  if (name == "integer") return SchemaNode::kInteger;
  if (name == "number") return static_cast<uint8_t>(SchemaNode::kInteger | SchemaNode::kFraction);
  if (name == kFractionType) return SchemaNode::kFraction;
  if (name == "string") return SchemaNode::kString;
  if (name == "array") return SchemaNode::kArray;
  if (name == "object") return SchemaNode::kObject;
  return std::nullopt;
}

// A count such as minLength; 2.0 counts as 2.
Result<uint64_t> count_of(const Json& value, const std::string& at) {
  if (value.is_integer() && value.as_integer() >= 0)
    return static_cast<uint64_t>(value.as_integer());
  if (value.type() == Json::Type::kFloat) {
    const double number = value.as_double();
    if (number >= 0 && number <= 1e15 && number == std::floor(number))
      return static_cast<uint64_t>(number);
  }
  return schema_error(at, "want a count, 0 or more");
}

Result<NumberRange::Bound> bound_of(const Json& value, const std::string& at, bool exclusive) {
  if (!value.is_number()) return schema_error(at, "want a number");
  Result<Decimal> decimal = to_decimal(value);
  if (!decimal) return decimal.error().within(at);
  return NumberRange::Bound{*std::move(decimal), exclusive};
}

void restrict_values(SchemaNode& node, std::vector<Json> values) {
  node.has_type = true;
  if (!node.values) {
    node.values = std::move(values);
    return;
  }
  std::erase_if(*node.values, [&](const Json& value) {
    return std::ranges::none_of(values,
                                [&](const Json& other) { return same_value(value, other); });
  });
}

void add_once(std::vector<std::string>& list, const std::string& item) {
  if (std::ranges::find(list, item) == list.end()) list.push_back(item);
}

template <typename T>
void keep_least(std::optional<T>& into, T value) {
  into = into ? std::min(*into, value) : value;
}

// As OpenAPI 3.0 spells a type that admits null.
bool is_nullable(const Json& schema) {
  const Json* nullable = schema.find("nullable");
  return nullable != nullptr && nullable->is_bool() && nullable->as_bool();
}

// Whether a bound may not be reached itself: by its name, or, as draft 4 and OpenAPI 3.0 have it,
// by a boolean of that name beside it.
bool is_exclusive(const Json& schema, std::string_view key) {
  if (key == "exclusiveMinimum" || key == "exclusiveMaximum") return true;
  const Json* beside = key == "minimum"   ? schema.find("exclusiveMinimum")
                       : key == "maximum" ? schema.find("exclusiveMaximum")
                                          : nullptr;
  return beside != nullptr && beside->is_bool() && beside->as_bool();
}

}  // namespace

Status SchemaReader::read_keywords(const SchemaRef& ref, SchemaNode& node) {
  const Json& schema = *ref.schema;
  for (const auto& [key, value] : schema.as_object()) {
    const std::string at = below(ref.pointer, key);
    if (std::ranges::find(kUnsupported, key) != kUnsupported.end())
      return unsupported_keyword(ref.pointer, str_cat(key, " is not supported"));
    bool known = false;
    if (key == "type" && is_nullable(schema)) {
      Json::Array types = value.is_array() ? value.as_array() : Json::Array{value};
      types.emplace_back("null");
      TRY(read_general(key, types, at, node, known));
    } else {
      TRY(read_general(key, value, at, node, known));
    }
    if (!known) TRY(read_string(key, value, at, node, known));
    if (!known) TRY(read_number(key, value, at, is_exclusive(schema, key), node, known));
  }
  TRY(read_array(schema, ref.pointer, node));
  return read_object(schema, ref.pointer, node);
}

Status SchemaReader::read_general(const std::string& key, const Json& value, const std::string& at,
                                  SchemaNode& node, bool& known) {
  known = true;
  if (key == "type") {
    const Json::Array list = value.is_array() ? value.as_array() : Json::Array{value};
    uint8_t types = 0;
    for (const Json& name : list) {
      const auto bits = name.is_string() ? type_bits(name.as_string()) : std::nullopt;
      if (!bits) return schema_error(at, "want a type of JSON or a list of them");
      types |= *bits;
    }
    node.types &= types;
    node.has_type = true;
  } else if (key == "enum") {
    if (!value.is_array()) return schema_error(at, "want a list");
    if (value.as_array().size() > SchemaNode::kMostValues)
      return schema_error(at, str_cat("more than ", SchemaNode::kMostValues, " values"));
    restrict_values(node, value.as_array());
  } else if (key == "const") {
    restrict_values(node, {value});
  } else {
    known = false;
  }
  return {};
}

Status SchemaReader::read_string(const std::string& key, const Json& value, const std::string& at,
                                 SchemaNode& node, bool& known) {
  known = true;
  if (key == "minLength") {
    TRY_ASSIGN(const uint64_t count, count_of(value, at));
    node.min_length = std::max(node.min_length, count);
  } else if (key == "maxLength") {
    TRY_ASSIGN(const uint64_t count, count_of(value, at));
    keep_least(node.max_length, count);
  } else if (key == "pattern") {
    if (!value.is_string()) return schema_error(at, "want a string");
    const PartedPattern parted = part_lookaheads(value.as_string());
    for (const std::string& pattern : parted.found) add_once(node.patterns, pattern);
    for (const std::string& pattern : parted.not_found) add_once(node.not_patterns, pattern);
  } else if (key == "format") {
    if (!value.is_string()) return schema_error(at, "want a string");
    add_once(node.formats, value.as_string());
  } else {
    known = false;
    return {};
  }
  node.mentioned |= SchemaNode::kString;
  return {};
}

Status SchemaReader::read_number(const std::string& key, const Json& value, const std::string& at,
                                 bool exclusive, SchemaNode& node, bool& known) {
  const bool least = key == "minimum" || key == "exclusiveMinimum";
  const bool most = key == "maximum" || key == "exclusiveMaximum";
  known = least || most || key == "multipleOf";
  if (!known) return {};
  if (key == "multipleOf") {
    if (!value.is_number() || value.as_double() <= 0)
      return schema_error(at, "want a number above 0");
    Result<Decimal> step = to_decimal(value);
    if (!step) return step.error().within(at);
    node.steps.push_back(*std::move(step));
    node.mentioned |= SchemaNode::kInteger | SchemaNode::kFraction;
    return {};
  }
  if (value.is_bool() && key.starts_with("exclusive")) return {};  // said with the bound beside it
  TRY_ASSIGN(const NumberRange::Bound bound, bound_of(value, at, exclusive));
  if (least)
    node.range.at_least(bound);
  else
    node.range.at_most(bound);
  node.mentioned |= SchemaNode::kInteger | SchemaNode::kFraction;
  return {};
}

Status SchemaReader::read_array(const Json& schema, const std::string& pointer, SchemaNode& node) {
  const auto about = [&](std::string_view key) {
    const Json* value = schema.find(key);
    if (value != nullptr) node.mentioned |= SchemaNode::kArray;
    return value;
  };
  if (const Json* least = about("minItems")) {
    TRY_ASSIGN(const uint64_t count, count_of(*least, below(pointer, "minItems")));
    node.min_items = std::max(node.min_items, count);
  }
  if (const Json* most = about("maxItems")) {
    TRY_ASSIGN(const uint64_t count, count_of(*most, below(pointer, "maxItems")));
    keep_least(node.max_items, count);
  }
  if (const Json* unique = about("uniqueItems")) {
    if (!unique->is_bool()) return schema_error(below(pointer, "uniqueItems"), "want a boolean");
    node.unique_items |= unique->as_bool();
  }
  if (const Json* one = about("contains")) {
    SchemaNode::Contains contains{.ref = {one, below(pointer, "contains")}};
    if (const Json* least = about("minContains")) {
      TRY_ASSIGN(contains.least, count_of(*least, below(pointer, "minContains")));
    }
    if (const Json* most = about("maxContains")) {
      TRY_ASSIGN(contains.most, count_of(*most, below(pointer, "maxContains")));
    }
    if (contains.least > 0 || contains.most) node.contains.push_back(std::move(contains));
  }
  SchemaNode::Items items;
  // Drafts before 2020-12 spell prefixItems as a list under items, and items as additionalItems.
  const Json* first = about("prefixItems");
  const Json* others = about("items");
  std::string first_key = "prefixItems", others_key = "items";
  if (first == nullptr && others != nullptr && others->is_array()) {
    first = others;
    first_key = "items";
    others = about("additionalItems");
    others_key = "additionalItems";
  }
  if (first != nullptr) {
    if (!first->is_array())
      return schema_error(below(pointer, first_key), "want a list of schemas");
    for (size_t i = 0; i < first->as_array().size(); ++i)
      items.first.push_back({&first->as_array()[i], str_cat(pointer, "/", first_key, "/", i)});
  }
  if (others != nullptr) items.others = SchemaRef{others, below(pointer, others_key)};
  if (!items.first.empty() || items.others) node.items.push_back(std::move(items));
  return {};
}

Status SchemaReader::read_patterns(const Json& patterns, const std::string& at,
                                   SchemaNode::Members& into) {
  if (!patterns.is_object()) return schema_error(at, "want an object");
  for (const auto& [source, schema] : patterns.as_object()) {
    const std::string pointer = below(at, source);
    std::shared_ptr<const KeyPattern>& pattern = patterns_[source];
    if (!pattern) {
      const Result<Expr> expr = parse_regex(source, {.encode = characters});
      if (!expr) return expr.error().within(pointer);
      auto text = make_byte_dfa({*expr}, {});
      if (!text) return text.error().within(pointer);
      pattern = std::make_shared<const KeyPattern>(KeyPattern{source, *std::move(text)});
    }
    into.patterns.emplace_back(pattern, SchemaRef{&schema, pointer});
  }
  return {};
}

Status SchemaReader::read_object(const Json& schema, const std::string& pointer, SchemaNode& node) {
  const auto about = [&](std::string_view key) {
    const Json* value = schema.find(key);
    if (value != nullptr) node.mentioned |= SchemaNode::kObject;
    return value;
  };
  SchemaNode::Members members;
  if (const Json* properties = about("properties")) {
    const std::string at = below(pointer, "properties");
    if (!properties->is_object()) return schema_error(at, "want an object");
    for (const auto& [key, value] : properties->as_object())
      members.named.emplace_back(key, SchemaRef{&value, below(at, key)});
  }
  if (const Json* others = about("additionalProperties"))
    members.others = SchemaRef{others, below(pointer, "additionalProperties")};
  members.is_open = schema.find(kOpenKey) != nullptr;
  if (const Json* patterns = about("patternProperties"))
    TRY(read_patterns(*patterns, below(pointer, "patternProperties"), members));
  if (!members.named.empty() || !members.patterns.empty() || members.others)
    node.members.push_back(std::move(members));
  if (const Json* names = about("propertyNames"))
    node.key_schemas.push_back({names, below(pointer, "propertyNames")});
  if (const Json* required = about("required")) {
    const std::string at = below(pointer, "required");
    if (!required->is_array()) return schema_error(at, "want a list of keys");
    std::set<std::string> known(node.required.begin(), node.required.end());
    for (const Json& key : required->as_array()) {
      if (!key.is_string()) return schema_error(at, "want a list of keys");
      if (known.insert(key.as_string()).second) node.required.push_back(key.as_string());
    }
  }
  if (const Json* least = about("minProperties")) {
    TRY_ASSIGN(const uint64_t count, count_of(*least, below(pointer, "minProperties")));
    node.min_members = std::max(node.min_members, count);
  }
  if (const Json* most = about("maxProperties")) {
    TRY_ASSIGN(const uint64_t count, count_of(*most, below(pointer, "maxProperties")));
    keep_least(node.max_members, count);
  }
  return {};
}

}  // namespace pewter::grammar
