#include "grammar/schema_node.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace pewter::grammar {
namespace {

constexpr size_t kMostWays = 256, kMostValues = 10000;
constexpr int64_t kMostComparisons = 200000;

// Keywords that restrict values and that the grammar cannot follow.
constexpr std::array<std::string_view, 16> kUnsupported = {
    "not",           "if",
    "then",          "else",
    "contains",      "minContains",
    "maxContains",   "patternProperties",
    "propertyNames", "dependentRequired",
    "dependencies",  "dependentSchemas",
    "multipleOf",    "unevaluatedItems",
    "$dynamicRef",   "unevaluatedProperties",
};

std::string escaped(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

std::string below(const std::string& pointer, std::string_view key) {
  return str_cat(pointer, "/", escaped(key));
}

std::optional<uint8_t> type_bits(std::string_view name) {
  if (name == "null") return SchemaNode::kNull;
  if (name == "boolean") return SchemaNode::kBoolean;
  if (name == "integer") return SchemaNode::kInteger;
  if (name == "number") return static_cast<uint8_t>(SchemaNode::kInteger | SchemaNode::kFraction);
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

// Objects are equal whatever the order of their keys, 1 equals 1.0.
bool same_value(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) {
    const Result<Decimal> x = to_decimal(a), y = to_decimal(b);
    return x && y ? compare(*x, *y) == 0 : a.dump() == b.dump();
  }
  if (a.type() != b.type()) return false;
  if (a.is_array()) return std::ranges::equal(a.as_array(), b.as_array(), same_value);
  if (!a.is_object()) return a == b;
  return a.as_object().size() == b.as_object().size() &&
         std::ranges::all_of(a.as_object(), [&](const Json::Member& member) {
           const Json* other = b.find(member.first);
           return other != nullptr && same_value(member.second, *other);
         });
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

// Whether no value can be in both.
bool disjoint(const SchemaNode& a, const SchemaNode& b) {
  if ((a.types & b.types) == 0) return true;
  constexpr size_t kMostPairs = 1 << 16;
  if (a.values && b.values && a.values->size() * b.values->size() <= kMostPairs)
    return std::ranges::none_of(*a.values, [&](const Json& value) {
      return std::ranges::any_of(*b.values,
                                 [&](const Json& other) { return same_value(value, other); });
    });
  return false;
}

}  // namespace

Error schema_error(std::string_view pointer, std::string_view what) {
  return {ErrorCode::kInvalidArgument, str_cat(pointer, ": ", what)};
}

Error unsupported_keyword(std::string_view pointer, std::string_view what) {
  return {ErrorCode::kUnsupported, str_cat(pointer, ": ", what)};
}

Requirements SchemaNode::member(const std::string& key) const {
  Requirements all;
  for (const Members& part : members) {
    const auto at =
        std::ranges::find(part.named, key, [](const auto& named) { return named.first; });
    if (at != part.named.end())
      all.push_back(at->second);
    else if (part.others)
      all.push_back(*part.others);
  }
  return all;
}

Requirements SchemaNode::other_members() const {
  Requirements all;
  for (const Members& part : members)
    if (part.others) all.push_back(*part.others);
  return all;
}

std::vector<std::string> SchemaNode::keys() const {
  std::vector<std::string> keys;
  std::set<std::string_view> known;
  for (const Members& part : members)
    for (const auto& [key, ref] : part.named)
      if (known.insert(key).second) keys.push_back(key);
  for (const std::string& key : required)
    if (known.insert(key).second) keys.push_back(key);
  return keys;
}

Requirements SchemaNode::item(size_t index) const {
  Requirements all;
  for (const Items& part : items) {
    if (index < part.first.size())
      all.push_back(part.first[index]);
    else if (part.others)
      all.push_back(*part.others);
  }
  return all;
}

Requirements SchemaNode::other_items() const {
  Requirements all;
  for (const Items& part : items)
    if (part.others) all.push_back(*part.others);
  return all;
}

Result<SchemaRef> SchemaReader::resolve(const Json& reference, const std::string& pointer) const {
  if (!reference.is_string()) return schema_error(pointer, "want a string");
  std::string text = reference.as_string();
  if (!text.starts_with('#') || (text.size() > 1 && text[1] != '/'))
    return unsupported_keyword(
        pointer, "only references to a place in the same schema (\"#/…\") are supported");
  // %41 stands for A in a fragment.
  for (size_t i = 0; i + 2 < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] != '%' ||
        std::from_chars(&text[i + 1], &text[i + 3], value, 16).ptr != &text[i + 3])
      continue;
    text.replace(i, 3, 1, static_cast<char>(value));
  }
  SchemaRef ref{.schema = &document_, .pointer = "#"};
  const Error missing = schema_error(pointer, "there is nothing at the place it refers to");
  for (size_t at = 1; at < text.size();) {
    const size_t end = std::min(text.find('/', at + 1), text.size());
    std::string key;
    for (size_t i = at + 1; i < end; ++i) {
      const bool escape = text[i] == '~' && i + 1 < end;
      key += escape ? (text[++i] == '1' ? '/' : '~') : text[i];
    }
    at = end;
    ref.pointer = below(ref.pointer, key);
    if (ref.schema->is_array()) {
      size_t index = 0;
      const auto [stop, error] = std::from_chars(key.data(), key.data() + key.size(), index);
      if (error != std::errc() || stop != key.data() + key.size() ||
          index >= ref.schema->as_array().size())
        return missing;
      ref.schema = &ref.schema->as_array()[index];
    } else {
      ref.schema = ref.schema->find(key);
      if (ref.schema == nullptr) return missing;
    }
  }
  return ref;
}

Result<std::vector<SchemaNode>> SchemaReader::read(const Requirements& requirements) {
  std::vector<Way> open(1);
  for (const SchemaRef& ref : requirements) {
    open[0].pending.push_back({ref, nullptr});
    if (open[0].node.pointer.empty()) open[0].node.pointer = ref.pointer;
  }
  std::ranges::reverse(open[0].pending);
  std::vector<SchemaNode> nodes;
  while (!open.empty()) {
    Way way = std::move(open.back());
    open.pop_back();
    if (way.pending.empty()) {
      nodes.push_back(std::move(way.node));
    } else {
      TRY(advance(std::move(way), open));
    }
    if (open.size() + nodes.size() > kMostWays)
      return unsupported_keyword(requirements.front().pointer,
                                 str_cat("more than ", kMostWays, " combinations of alternatives"));
  }
  return nodes;
}

Status SchemaReader::advance(Way way, std::vector<Way>& open) {
  const Pending pending = std::move(way.pending.back());
  way.pending.pop_back();
  const Json& schema = *pending.ref.schema;
  const std::string& pointer = pending.ref.pointer;
  if (schema.is_bool()) {
    if (schema.as_bool()) open.push_back(std::move(way));
    return {};
  }
  if (!schema.is_object()) return schema_error(pointer, "want a schema: an object or a boolean");
  for (const Ancestor* a = pending.from.get(); a != nullptr; a = a->parent.get())
    if (a->schema == &schema)
      return schema_error(pointer, "it refers to itself without an end in sight");
  if (!way.seen.insert(&schema).second) {
    open.push_back(std::move(way));
    return {};
  }
  TRY(read_keywords(pending.ref, way.node));
  const auto from = std::make_shared<const Ancestor>(Ancestor{&schema, pending.from});
  if (const Json* reference = schema.find("$ref")) {
    TRY_ASSIGN(SchemaRef target, resolve(*reference, below(pointer, "$ref")));
    way.pending.push_back({std::move(target), from});
  }
  const auto list_of = [&](std::string_view key) -> Result<const Json::Array*> {
    const Json* list = schema.find(key);
    if (list == nullptr) return static_cast<const Json::Array*>(nullptr);
    if (!list->is_array() || list->as_array().empty())
      return schema_error(below(pointer, key), "want a list of schemas");
    return &list->as_array();
  };
  TRY_ASSIGN(const Json::Array* all_of, list_of("allOf"));
  for (size_t i = all_of == nullptr ? 0 : all_of->size(); i-- > 0;)
    way.pending.push_back({{&(*all_of)[i], str_cat(pointer, "/allOf/", i)}, from});

  // Each choice multiplies the ways.
  std::vector<Way> ways;
  ways.push_back(std::move(way));
  for (const std::string_view key : {"anyOf", "oneOf"}) {
    TRY_ASSIGN(const Json::Array* alternatives, list_of(key));
    if (alternatives == nullptr) continue;
    if (ways.size() * alternatives->size() > kMostWays)
      return unsupported_keyword(pointer,
                                 str_cat("more than ", kMostWays, " combinations of alternatives"));
    if (key == "oneOf") TRY(check_one_of(*schema.find(key), below(pointer, key)));
    std::vector<Way> more;
    for (const Way& one : ways)
      for (size_t i = 0; i < alternatives->size(); ++i) {
        more.push_back(one);
        more.back().pending.push_back(
            {{&(*alternatives)[i], str_cat(pointer, "/", key, "/", i)}, from});
      }
    ways = std::move(more);
  }
  // The last one is taken first: alternatives keep their order.
  for (size_t i = ways.size(); i-- > 0;) open.push_back(std::move(ways[i]));
  return {};
}

// oneOf asks that no second alternative holds, which a grammar can promise only where it can see
// it.
Status SchemaReader::check_one_of(const Json& list, const std::string& pointer) {
  if (!checked_.insert(&list).second) return {};
  std::vector<std::vector<SchemaNode>> alternatives;
  for (size_t i = 0; i < list.as_array().size(); ++i) {
    TRY_ASSIGN(alternatives.emplace_back(),
               read({{&list.as_array()[i], str_cat(pointer, "/", i)}}));
  }
  // By a member that both need and whose values tell them apart.
  const auto told_apart = [&](const SchemaNode& a, const SchemaNode& b) -> Result<bool> {
    ++comparisons_;
    if (disjoint(a, b)) return true;
    if ((a.types & b.types) != SchemaNode::kObject) return false;
    for (const std::string& key : a.required) {
      if (std::ranges::find(b.required, key) == b.required.end()) continue;
      if (++comparisons_ > kMostComparisons)
        return schema_error(pointer, "too many alternatives to tell apart");
      const Requirements ours = a.member(key), theirs = b.member(key);
      if (ours.empty() || theirs.empty()) continue;
      TRY_ASSIGN(const std::vector<SchemaNode> x, read(ours));
      TRY_ASSIGN(const std::vector<SchemaNode> y, read(theirs));
      if (std::ranges::all_of(x, [&](const SchemaNode& one) {
            return std::ranges::all_of(
                y, [&](const SchemaNode& other) { return disjoint(one, other); });
          }))
        return true;
    }
    return false;
  };
  for (size_t i = 0; i < alternatives.size(); ++i)
    for (size_t j = i + 1; j < alternatives.size(); ++j)
      for (const SchemaNode& a : alternatives[i])
        for (const SchemaNode& b : alternatives[j]) {
          TRY_ASSIGN(const bool apart, told_apart(a, b));
          if (!apart)
            return unsupported_keyword(
                pointer, str_cat("alternatives ", i, " and ", j,
                                 " may hold at once, as far as can be seen: oneOf is supported "
                                 "where types, enum or const tell them apart; use anyOf"));
        }
  return {};
}

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
    if (!known) TRY(read_number(key, value, at, node, known));
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
    if (value.as_array().size() > kMostValues)
      return schema_error(at, str_cat("more than ", kMostValues, " values"));
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
  } else if (key == "pattern" || key == "format") {
    if (!value.is_string()) return schema_error(at, "want a string");
    add_once(key == "pattern" ? node.patterns : node.formats, value.as_string());
  } else {
    known = false;
    return {};
  }
  node.mentioned |= SchemaNode::kString;
  return {};
}

Status SchemaReader::read_number(const std::string& key, const Json& value, const std::string& at,
                                 SchemaNode& node, bool& known) {
  const bool least = key == "minimum" || key == "exclusiveMinimum";
  const bool most = key == "maximum" || key == "exclusiveMaximum";
  known = least || most;
  if (!known) return {};
  const bool exclusive = key.starts_with("exclusive");
  if (exclusive && value.is_bool())
    return unsupported_keyword(
        at, "the boolean form of draft 4 is not supported; give the limit itself");
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
    if (unique->as_bool()) return unsupported_keyword(pointer, "uniqueItems is not supported");
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
  if (!members.named.empty() || members.others) node.members.push_back(std::move(members));
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
