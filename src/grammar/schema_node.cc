#include "grammar/schema_node.h"

#include <algorithm>
#include <charconv>

namespace pewter::grammar {
namespace {

constexpr size_t kMostWays = 256;
constexpr int64_t kMostComparisons = 200000;

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

std::string below(const std::string& pointer, std::string_view key) {
  return str_cat(pointer, "/", escaped(key));
}

bool accepts(const ByteDfa& dfa, std::string_view text) {
  uint32_t state = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    const auto& edges = dfa.states[state].edges;
    const auto at = std::ranges::find_if(edges, [byte](const ByteDfa::Edge& edge) {
      return edge.first <= byte && byte <= edge.last;
    });
    if (at == edges.end()) return false;
    state = at->target;
  }
  return dfa.states[state].end >= 0;
}

bool KeyPattern::matches(std::string_view key) const { return accepts(*text, key); }

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
    bool is_other = at == part.named.end();
    if (!is_other) all.push_back(at->second);
    for (const auto& [pattern, ref] : part.patterns)
      if (pattern->matches(key)) {
        all.push_back(ref);
        is_other = false;
      }
    if (is_other && part.others) all.push_back(*part.others);
  }
  for (const Unevaluated& rest : unevaluated)
    if (std::ranges::none_of(members, [&](const Members& part) {
          return rest.evaluates(part) && (part.others || part.names(key));
        }))
      all.push_back(rest.others);
  return all;
}

bool SchemaNode::Members::names(const std::string& key) const {
  return std::ranges::any_of(named, [&](const auto& one) { return one.first == key; }) ||
         std::ranges::any_of(patterns, [&](const auto& one) { return one.first->matches(key); });
}

// What a contrary says of members does not count.
bool SchemaNode::Unevaluated::evaluates(const Members& part) const {
  return !part.is_open && std::ranges::find(part.path, of) != part.path.end();
}

Requirements SchemaNode::other_members() const {
  Requirements all;
  for (const Members& part : members)
    if (part.others) all.push_back(*part.others);
  for (const Unevaluated& rest : unevaluated)
    if (std::ranges::none_of(members, [&](const Members& part) {
          return rest.evaluates(part) && part.others.has_value();
        }))
      all.push_back(rest.others);
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

Result<SchemaRef> resolve_reference(const Json& document, const Json& reference,
                                    const std::string& pointer) {
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
  SchemaRef ref{.schema = &document, .pointer = "#"};
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

Result<SchemaRef> SchemaReader::contrary(const SchemaRef& ref) {
  TRY_ASSIGN(const Json* schema, rewriter_.negated(*ref.schema, ref.pointer));
  return SchemaRef{schema, ref.pointer};
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
  const size_t parts = way.node.members.size();
  TRY(read_keywords(pending.ref, way.node));
  const auto from = std::make_shared<const Ancestor>(Ancestor{&schema, pending.from});
  for (size_t i = parts; i < way.node.members.size(); ++i)
    for (const Ancestor* a = from.get(); a != nullptr; a = a->parent.get())
      way.node.members[i].path.push_back(a->schema);
  if (const Json* others = schema.find("unevaluatedProperties")) {
    way.node.unevaluated.push_back({&schema, {others, below(pointer, "unevaluatedProperties")}});
    way.node.mentioned |= SchemaNode::kObject;
  }
  if (const Json* reference = schema.find("$ref")) {
    TRY_ASSIGN(SchemaRef target, resolve_reference(document_, *reference, below(pointer, "$ref")));
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

  TRY(rewrite(pending.ref, from, way));

  // Each choice multiplies the ways.
  std::vector<Way> ways;
  ways.push_back(std::move(way));
  for (const std::string_view key : {"anyOf", "oneOf"}) {
    TRY_ASSIGN(const Json::Array* alternatives, list_of(key));
    if (alternatives == nullptr) continue;
    if (ways.size() * alternatives->size() > kMostWays)
      return unsupported_keyword(pointer,
                                 str_cat("more than ", kMostWays, " combinations of alternatives"));
    if (key == "oneOf") {
      const std::string at = below(pointer, key);
      TRY_ASSIGN(const bool apart, are_apart(*schema.find(key), at));
      if (!apart) {
        TRY_ASSIGN(const Json* exact, rewriter_.exactly_one(*schema.find(key), at));
        for (Way& one : ways) one.pending.push_back({{exact, at}, from});
        continue;
      }
    }
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

Status SchemaReader::rewrite(const SchemaRef& ref, const std::shared_ptr<const Ancestor>& from,
                             Way& way) {
  const Json& schema = *ref.schema;
  const auto add = [&](const Json* rewritten, std::string_view key) {
    if (rewritten != nullptr) way.pending.push_back({{rewritten, below(ref.pointer, key)}, from});
  };
  TRY_ASSIGN(const Json* condition, rewriter_.conditional(schema, ref.pointer));
  add(condition, "if");
  TRY_ASSIGN(const Json* dependent, rewriter_.dependent(schema, ref.pointer));
  add(dependent, "dependentRequired");
  const Json* contrary = schema.find("not");
  if (contrary == nullptr) return {};
  const std::string at = below(ref.pointer, "not");
  if (!SchemaRewriter::is_plain(*contrary)) {
    TRY_ASSIGN(const Json* negated, rewriter_.negated(*contrary, at));
    add(negated, "not");
    return {};
  }
  if (const Json* pattern = contrary->find("pattern")) {
    if (!pattern->is_string()) return schema_error(at, "want a pattern that is a string");
    way.node.types &= SchemaNode::kString;  // what is no text has no pattern to break
    way.node.has_type = true;
    way.node.not_patterns.push_back(pattern->as_string());
  } else if (const Json* value = contrary->find("const")) {
    way.node.excluded.push_back(*value);
  } else {
    const Json& values = *contrary->find("enum");
    if (!values.is_array() || values.as_array().size() > SchemaNode::kMostValues)
      return schema_error(at,
                          str_cat("want a list of at most ", SchemaNode::kMostValues, " values"));
    for (const Json& each : values.as_array()) way.node.excluded.push_back(each);
  }
  return {};
}

// oneOf asks that no second alternative holds, which is easily promised where types, values or a
// member that all need tell them apart.
Result<bool> SchemaReader::are_apart(const Json& list, const std::string& pointer) {
  const auto [known, is_new] = apart_.try_emplace(&list, true);
  if (!is_new) return known->second;
  bool& apart_always = known->second;
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
          if (!apart) return apart_always = false;
        }
  return true;
}

}  // namespace pewter::grammar
