#include "grammar/schema_rewrite.h"

#include <algorithm>
#include <array>

#include "grammar/schema_node.h"

namespace pewter::grammar {
namespace {

constexpr int kDeepest = 32;
constexpr size_t kMostCopies = 4096, kMostAlternatives = 8;

Json object_of(std::string_view key, Json value) {
  Json json;
  json.set(key, std::move(value));
  return json;
}

Json not_of(const Json& schema) { return object_of("not", schema); }

Json typed(std::string_view type, std::string_view key, Json value) {
  Json json = object_of("type", type);
  json.set(key, std::move(value));
  return json;
}

// An object whose member `key` satisfies `schema`, others as they may be.
Json with_member(const std::string& key, Json schema) {
  Json json = object_of("properties", object_of(key, std::move(schema)));
  json.set(kOpenKey, true);
  return json;
}

Json without_member(const std::string& key) { return with_member(key, Json(false)); }

Json required(Json::Array keys) { return object_of("required", Json(std::move(keys))); }

Json all_of(Json::Array schemas) { return object_of("allOf", Json(std::move(schemas))); }

Json any_of(Json::Array schemas) {
  if (schemas.empty()) return Json(false);
  if (schemas.size() == 1) return std::move(schemas.front());
  return object_of("anyOf", Json(std::move(schemas)));
}

bool holds_always(const Json& schema) {
  return (schema.is_bool() && schema.as_bool()) ||
         (schema.is_object() && schema.as_object().empty());
}

// Types that a value of none of these has.
Json::Array other_types(const Json& value, bool nullable) {
  const Json::Array given = value.is_array() ? value.as_array() : Json::Array{value};
  const auto names = [&given](std::string_view name) {
    return std::ranges::find(given, Json(name)) != given.end();
  };
  Json::Array others;
  for (const char* name : {"object", "array", "string", "boolean"})
    if (!names(name)) others.emplace_back(name);
  if (!names("null") && !nullable) others.emplace_back("null");
  if (!names("number"))
    others.emplace_back(names("integer") ? std::string(kFractionType) : "number");
  return others;
}

// A count that is one less or one more.
Result<Json> moved(const Json& count, int by, const std::string& at) {
  constexpr int64_t kMost = int64_t{1} << 40;
  if (!count.is_integer() || std::abs(count.as_integer()) > kMost)
    return unsupported_keyword(at, "its contrary is not supported");
  return Json(count.as_integer() + by);
}

struct Contrary {
  std::string_view key, type, contrary;
  int by = 0;
};
// Breaking one of these is a bound on the other side.
constexpr std::array<Contrary, 10> kContraries = {{
    {"minLength", "string", "maxLength", -1},
    {"maxLength", "string", "minLength", 1},
    {"minItems", "array", "maxItems", -1},
    {"maxItems", "array", "minItems", 1},
    {"minProperties", "object", "maxProperties", -1},
    {"maxProperties", "object", "minProperties", 1},
    {"minimum", "number", "exclusiveMaximum"},
    {"maximum", "number", "exclusiveMinimum"},
    {"exclusiveMinimum", "number", "maximum"},
    {"exclusiveMaximum", "number", "minimum"},
}};

// Whether a keyword restricts values and has no contrary here.
bool restricts_one_way(std::string_view key, const Json& value) {
  constexpr std::array<std::string_view, 15> kOneWay = {
      "format",
      "multipleOf",
      "patternProperties",
      "propertyNames",
      "items",
      "prefixItems",
      "additionalProperties",
      "additionalItems",
      "uniqueItems",
      "contains",
      "minContains",
      "maxContains",
      "unevaluatedItems",
      "$dynamicRef",
      "unevaluatedProperties",
  };
  if (std::ranges::find(kOneWay, key) == kOneWay.end()) return false;
  const bool says_nothing =
      key == "contains" ? false
                        : holds_always(value) || (key == "uniqueItems" && value == Json(false));
  return !says_nothing;
}

}  // namespace

bool SchemaRewriter::is_plain(const Json& schema) {
  if (!schema.is_object()) return false;
  size_t plain = 0, others = 0;
  for (const auto& [key, value] : schema.as_object()) {
    if (key == "enum" || key == "const" || key == "pattern")
      ++plain;
    else if (key != "title" && key != "description" && key != "$comment")
      ++others;
  }
  return plain == 1 && others == 0;
}

template <typename Make>
Result<const Json*> SchemaRewriter::remember(Kind kind, const Json& of, Make make) {
  const auto [at, is_new] = known_.try_emplace({kind, &of}, nullptr);
  if (!is_new) return at->second;
  TRY_ASSIGN(Json made, make());
  at->second = &made_.emplace_back(std::move(made));
  return at->second;
}

Result<const Json*> SchemaRewriter::negated(const Json& schema, const std::string& pointer) {
  // By what a reference means, so that the contrary of a recursive schema is one schema too.
  SchemaRef meant{.schema = &schema, .pointer = pointer};
  for (int depth = 0; meant.schema->is_object() && meant.schema->as_object().size() == 1; ++depth) {
    const Json* reference = meant.schema->find("$ref");
    if (reference == nullptr) break;
    if (depth > kDeepest)
      return schema_error(pointer, "it refers to itself without an end in sight");
    TRY_ASSIGN(meant, resolve_reference(document_, *reference, meant.pointer + "/$ref"));
  }
  return remember(Kind::kNegated, *meant.schema,
                  [&] { return negate(*meant.schema, meant.pointer); });
}

Result<Json> SchemaRewriter::negate(const Json& schema, const std::string& pointer) {
  if (schema.is_bool()) return Json(!schema.as_bool());
  if (!schema.is_object()) return schema_error(pointer, "want a schema: an object or a boolean");
  Json::Array ways;
  for (const auto& [key, value] : schema.as_object())
    TRY(negate_keyword(schema, key, value, str_cat(pointer, "/", key), ways));
  copied_ += ways.size();
  if (copied_ > kMostCopies) return schema_error(pointer, "too many alternatives");
  return any_of(std::move(ways));
}

// Adds the ways in which a value breaks this keyword.
Status SchemaRewriter::negate_keyword(const Json& schema, const std::string& key, const Json& value,
                                      const std::string& at, Json::Array& ways) {
  if (key == "enum" || key == "const" || key == "pattern" || key == "$ref") {
    ways.push_back(not_of(object_of(key, value)));
  } else if (key == "type") {
    const Json* nullable = schema.find("nullable");
    Json::Array types =
        other_types(value, nullable != nullptr && nullable->is_bool() && nullable->as_bool());
    if (!types.empty()) ways.push_back(object_of("type", Json(std::move(types))));
  } else if (const auto* const found = std::ranges::find(kContraries, key, &Contrary::key);
             found != kContraries.end()) {
    if (found->by == 0) {
      for (const char* limit : {"exclusiveMinimum", "exclusiveMaximum"})
        if (const Json* beside = schema.find(limit); beside != nullptr && beside->is_bool())
          return unsupported_keyword(at,
                                     "the contrary of draft 4's boolean limits is not supported");
      ways.push_back(typed(found->type, found->contrary, value));
    } else {
      TRY_ASSIGN(Json bound, moved(value, found->by, at));
      if (bound.as_integer() >= 0)
        ways.push_back(typed(found->type, found->contrary, std::move(bound)));
    }
  } else if (key == "contains" && schema.find("minContains") == nullptr) {
    ways.push_back(typed("array", "items", not_of(value)));
  } else if (key == "if") {
    for (const auto& [condition, branch] :
         {std::pair(value, schema.find("then")), {not_of(value), schema.find("else")}})
      if (branch != nullptr) ways.push_back(all_of({condition, not_of(*branch)}));
  } else if (restricts_one_way(key, value)) {
    return unsupported_keyword(at, "its contrary is not supported (under not, if or oneOf)");
  } else {
    TRY(negate_members(key, value, at, ways));
    return negate_list(key, value, at, ways);
  }
  return {};
}

// Of an object that has a member, or one too few.
Status SchemaRewriter::negate_members(const std::string& key, const Json& value,
                                      const std::string& at, Json::Array& ways) {
  const bool depends =
      key == "dependentRequired" || key == "dependentSchemas" || key == "dependencies";
  if (key == "required") {
    for (const Json& name : value.is_array() ? value.as_array() : Json::Array{}) {
      if (!name.is_string()) return schema_error(at, "want a list of keys");
      Json way = without_member(name.as_string());
      way.set("type", "object");
      ways.push_back(std::move(way));
    }
  } else if (key == "properties") {
    for (const auto& [name, property] : value.is_object() ? value.as_object() : Json::Object{}) {
      if (holds_always(property)) continue;
      Json way = with_member(name, not_of(property));
      way.set("type", "object");
      way.set("required", Json(Json::Array{Json(name)}));
      ways.push_back(std::move(way));
    }
  } else if (depends) {
    for (const auto& [name, needed] : value.is_object() ? value.as_object() : Json::Object{})
      ways.push_back(all_of({object_of("type", "object"), required({Json(name)}),
                             not_of(needed.is_array() ? required(needed.as_array()) : needed)}));
  }
  return {};
}

Status SchemaRewriter::negate_list(const std::string& key, const Json& value, const std::string& at,
                                   Json::Array& ways) {
  if (key == "not") ways.push_back(value);
  if (key != "anyOf" && key != "oneOf" && key != "allOf") return {};
  if (!value.is_array()) return schema_error(at, "want a list of schemas");
  const Json::Array& all = value.as_array();
  Json::Array none;
  none.reserve(all.size());
  for (const Json& schema : all) none.push_back(not_of(schema));
  if (key == "allOf") {
    ways.insert(ways.end(), none.begin(), none.end());
    return {};
  }
  ways.push_back(all_of(std::move(none)));
  if (key == "anyOf") return {};
  // Or two of them.
  if (all.size() > kMostAlternatives)
    return unsupported_keyword(at, str_cat("more than ", kMostAlternatives, " alternatives"));
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = i + 1; j < all.size(); ++j) ways.push_back(all_of({all[i], all[j]}));
  return {};
}

Result<const Json*> SchemaRewriter::conditional(const Json& schema, const std::string& pointer) {
  const Json* condition = schema.find("if");
  const Json* then = schema.find("then");
  const Json* otherwise = schema.find("else");
  if (condition == nullptr || (then == nullptr && otherwise == nullptr)) return nullptr;
  return remember(Kind::kConditional, schema, [&]() -> Result<Json> {
    TRY(negated(*condition, pointer + "/if"));
    return any_of({all_of({*condition, then == nullptr ? Json(true) : *then}),
                   all_of({not_of(*condition), otherwise == nullptr ? Json(true) : *otherwise})});
  });
}

Result<const Json*> SchemaRewriter::dependent(const Json& schema, const std::string& pointer) {
  constexpr std::array<std::string_view, 3> kKeys = {"dependentRequired", "dependentSchemas",
                                                     "dependencies"};
  if (std::ranges::none_of(kKeys, [&](auto key) { return schema.find(key) != nullptr; }))
    return nullptr;
  return remember(Kind::kDependent, schema, [&]() -> Result<Json> {
    Json::Array conditions;
    for (const std::string_view key : kKeys) {
      const Json* all = schema.find(key);
      if (all == nullptr) continue;
      const std::string at = str_cat(pointer, "/", key);
      if (!all->is_object()) return schema_error(at, "want an object");
      for (const auto& [name, needed] : all->as_object()) {
        if (key != "dependencies" && needed.is_array() != (key == "dependentRequired"))
          return schema_error(at,
                              key == "dependentRequired" ? "want lists of keys" : "want schemas");
        conditions.push_back(any_of(
            {without_member(name), needed.is_array() ? required(needed.as_array()) : needed}));
      }
    }
    return all_of(std::move(conditions));
  });
}

Result<const Json*> SchemaRewriter::exactly_one(const Json& list, const std::string& pointer) {
  const Json::Array& alternatives = list.as_array();
  if (alternatives.size() > kMostAlternatives)
    return unsupported_keyword(
        pointer, str_cat("more than ", kMostAlternatives, " alternatives that may hold at once"));
  return remember(Kind::kExactlyOne, list, [&]() -> Result<Json> {
    // What cannot be turned around is told by its own place, not by that in the rewritten schema.
    for (size_t i = 0; i < alternatives.size(); ++i)
      TRY(negated(alternatives[i], str_cat(pointer, "/", i)));
    Json::Array ways;
    for (size_t i = 0; i < alternatives.size(); ++i) {
      Json::Array all = {alternatives[i]};
      for (size_t j = 0; j < alternatives.size(); ++j)
        if (j != i) all.push_back(not_of(alternatives[j]));
      ways.push_back(all_of(std::move(all)));
    }
    return any_of(std::move(ways));
  });
}

}  // namespace pewter::grammar
