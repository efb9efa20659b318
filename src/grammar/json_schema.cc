#include "grammar/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>

#include "grammar/limits.h"
#include "grammar/reader.h"
#include "grammar/string_schema.h"

namespace pewter::grammar {
namespace {

constexpr size_t kMostKeys = 2048, kMostFirstItems = 1024;
constexpr uint64_t kMostCount = 1 << 20;
constexpr uint32_t kMostKeyStates = 1 << 15;

using Node = SchemaNode;

bool says_nothing(const Json& schema) {
  return (schema.is_bool() && schema.as_bool()) ||
         (schema.is_object() && schema.as_object().empty());
}

const TextWriting& json_writing() {
  static const TextWriting writing{.encode = json_characters, .any = any_json_character()};
  return writing;
}

class SchemaCompiler {
 public:
  SchemaCompiler(const Json& document, const SchemaOptions& options, Grammar& grammar,
                 JsonRules& rules)
      : document_(document),
        options_(options),
        grammar_(grammar),
        rules_(rules),
        reader_(document) {}

  // A rule of the values that satisfy all requirements. Its body is written by finish().
  Result<Expr> values_of(Requirements requirements) {
    std::vector<const Json*> key;
    for (const SchemaRef& ref : requirements) {
      if (ref.schema->is_bool() && !ref.schema->as_bool()) return nothing();
      if (!says_nothing(*ref.schema)) key.push_back(ref.schema);
    }
    if (key.empty()) return rules_.value();
    std::erase_if(requirements, [](const SchemaRef& ref) { return says_nothing(*ref.schema); });
    std::ranges::sort(key);
    key.erase(std::unique(key.begin(), key.end()), key.end());
    const auto [at, is_new] = known_.try_emplace(std::move(key), 0);
    if (is_new) {
      if (grammar_.rules.size() >= kMostRules)
        return schema_error(requirements.front().pointer, "the schema has too many parts");
      at->second = grammar_.add(requirements.front().pointer, nothing());
      open_.push_back({at->second, std::move(requirements)});
    }
    return rule(at->second);
  }

  Status finish() {
    while (!open_.empty()) {
      const Open next = std::move(open_.front());
      open_.pop_front();
      TRY_ASSIGN(const std::vector<Node> nodes, reader_.read(next.requirements));
      std::vector<Expr> ways;
      for (const Node& node : nodes) {
        TRY_ASSIGN(Expr way, way_of(node));
        ways.push_back(std::move(way));
      }
      grammar_.rules[next.id].body = choice(std::move(ways));
    }
    return {};
  }

  Result<Expr> way_of(const Node& node) {
    const uint8_t types = types_of(node);
    if (node.values) return constants_of(node, *node.values, types);
    std::vector<Expr> parts;
    if ((types & Node::kObject) != 0) {
      TRY_ASSIGN(Expr part, object_of(node));
      parts.push_back(std::move(part));
    }
    if ((types & Node::kArray) != 0) {
      TRY_ASSIGN(Expr part, array_of(node));
      parts.push_back(std::move(part));
    }
    if ((types & Node::kString) != 0) {
      TRY_ASSIGN(Expr part, string_of(node));
      parts.push_back(std::move(part));
    }
    if ((types & Node::kInteger) != 0) {
      TRY_ASSIGN(Expr part, number_of(node, (types & Node::kFraction) == 0));
      parts.push_back(std::move(part));
    }
    if ((types & Node::kBoolean) != 0) {
      parts.push_back(literal("true"));
      parts.push_back(literal("false"));
    }
    if ((types & Node::kNull) != 0) parts.push_back(literal("null"));
    return choice(std::move(parts));
  }

 private:
  struct Open {
    RuleId id;
    Requirements requirements;
  };

  uint8_t types_of(const Node& node) const {
    constexpr uint8_t kNumbers = Node::kInteger | Node::kFraction;
    const uint8_t about = node.mentioned;
    const bool one_kind = about == kNumbers || about == Node::kString || about == Node::kArray ||
                          about == Node::kObject;
    return options_.narrow && !node.has_type && one_kind ? about : node.types;
  }

  Result<Expr> constants_of(const Node& node, const std::vector<Json>& values, uint8_t types) {
    std::vector<Expr> parts;
    std::unique_ptr<const Automaton> rest;  // what the other keywords admit
    for (const Json& value : values) {
      TRY_ASSIGN(const bool fits, satisfies(node, types, value, rest));
      if (fits) parts.push_back(rules_.constant(value));
    }
    return choice(std::move(parts));
  }

  // Whether a constant satisfies the other keywords.
  Result<bool> satisfies(const Node& node, uint8_t types, const Json& value,
                         std::unique_ptr<const Automaton>& rest) {
    switch (value.type()) {
      case Json::Type::kNull:
        return (types & Node::kNull) != 0;
      case Json::Type::kBool:
        return (types & Node::kBoolean) != 0;
      case Json::Type::kInteger:
      case Json::Type::kBigInteger:
      case Json::Type::kFloat: {
        TRY_ASSIGN(const Decimal decimal, to_decimal(value));
        const bool right_type =
            (types & (decimal.fraction.empty() ? Node::kInteger : Node::kFraction)) != 0;
        return right_type && contains(node.range, decimal);
      }
      case Json::Type::kString:
        if ((types & Node::kString) == 0) return false;
        if (!restricts_text(node)) return true;
        break;
      case Json::Type::kArray:
        if ((types & Node::kArray) == 0) return false;
        break;
      case Json::Type::kObject:
        if ((types & Node::kObject) == 0) return false;
        break;
    }
    if (!rest) {
      TRY_ASSIGN(Automaton made, without_values(node));
      rest = std::make_unique<const Automaton>(std::move(made));
    }
    return matches(*rest, value.dump({.spaced = true}));
  }

  Result<Automaton> without_values(Node node) {
    node.values.reset();
    Grammar grammar;
    grammar.add(node.pointer, nothing());
    JsonRules rules(grammar);
    SchemaCompiler compiler(document_, options_, grammar, rules);
    TRY_ASSIGN(Expr body, compiler.way_of(node));
    grammar.rules[0].body = std::move(body);
    TRY(compiler.finish());
    return Automaton::compile(std::move(grammar));
  }

  Result<Expr> string_of(const Node& node) {
    if (!restricts_text(node)) return rules_.string();
    TRY_ASSIGN(Expr text, text_of(node, json_writing()));
    return sequence({literal("\""), std::move(text), literal("\"")});
  }

  Result<Expr> number_of(const Node& node, bool integer) {
    if (!node.range.least && !node.range.most) return integer ? rules_.integer() : rules_.number();
    NumberRange range = node.range;
    range.integer = integer;
    Result<Expr> numbers = numbers_in(range);
    if (!numbers) return numbers.error().within(node.pointer);
    return numbers;
  }

  // Whether schemas say nothing of the others, though they name some.
  template <typename Part, typename Named>
  bool is_closed(const std::vector<Part>& parts, const Named& names_some) const {
    return options_.narrow && std::ranges::any_of(parts, names_some) &&
           std::ranges::none_of(parts, [](const Part& part) { return part.others.has_value(); });
  }

  Result<Expr> other_member(const Node& node, const std::vector<std::string>& keys) {
    if (is_closed(node.members, [](const Node::Members& part) { return !part.named.empty(); }))
      return nothing();
    TRY_ASSIGN(Expr value, values_of(node.other_members()));
    if (value->kind == Expression::Kind::kNothing) return value;
    Expr key = rules_.string();
    if (!keys.empty()) {
      // Written in the one usual way, so that no named key comes in disguise.
      std::vector<Expr> named;
      named.reserve(keys.size());
      for (const std::string& name : keys) named.push_back(json_string_literal(name));
      const ByteDfaOptions limits{.most_states = kMostKeyStates};
      const auto any = make_byte_dfa(
          {sequence({literal("\""), repeat(json_characters({{0, 0x10FFFF}}), 0, kUnlimited),
                     literal("\"")})},
          limits);
      if (!any) return any.error().within(node.pointer);
      const auto taken = make_byte_dfa({choice(std::move(named))}, limits);
      if (!taken) return taken.error().within(node.pointer);
      const auto others = difference(**any, **taken, kMostKeyStates);
      if (!others) return others.error().within(node.pointer);
      key = dfa(*others, {literal("")});
    }
    return rules_.member(std::move(key), std::move(value));
  }

  Result<Expr> object_of(const Node& node) {
    const std::vector<std::string> keys = node.keys();
    if (keys.size() > kMostKeys)
      return schema_error(node.pointer, str_cat("more than ", kMostKeys, " properties"));
    TRY_ASSIGN(const Expr other, other_member(node, keys));
    const bool is_open = other->kind != Expression::Kind::kNothing;
    TRY(check_member_counts(node, keys.size(), is_open));
    if (keys.empty()) return map_of(node, other);

    // must[i]: a member comes now, of the keys from i on or an other one. may[i]: one has come.
    GraphBuilder graph;
    const size_t count = keys.size();
    std::vector<uint32_t> must, may;
    for (size_t i = 0; i <= count; ++i) {
      must.push_back(graph.add_node());
      may.push_back(graph.add_node());
    }
    const std::set<std::string_view> required(node.required.begin(), node.required.end());
    graph.add(GraphBuilder::kBegin, must[0], literal(""));
    size_t last_required = 0;  // and all before it are behind us from here on
    for (size_t i = 0; i < count; ++i)
      if (required.contains(keys[i])) last_required = i + 1;
    for (size_t i = 0; i <= count; ++i) {
      if (i < count) {
        TRY_ASSIGN(Expr value, values_of(node.member(keys[i])));
        graph.add(must[i], may[i + 1],
                  rules_.member(json_string_literal(keys[i]), std::move(value)));
        if (!required.contains(keys[i])) graph.add(must[i], must[i + 1], literal(""));
      }
      if (i < count || is_open) graph.add(may[i], must[i], rules_.comma());
      if (i >= last_required) graph.add(may[i], GraphBuilder::kEnd, literal(""));
    }
    graph.add(must[count], may[count], other);
    return rules_.in_brackets('{', std::move(graph).build(), required.empty(), '}');
  }

  static Status check_member_counts(const Node& node, size_t keys, bool is_open) {
    if (node.min_members > std::max<uint64_t>(node.required.size(), keys == 0 ? 1 : 0))
      return unsupported_keyword(node.pointer,
                                 "minProperties is supported up to the number of required "
                                 "properties, or 1 where none are named");
    if (node.max_members && keys > 0 && (is_open || *node.max_members < keys))
      return unsupported_keyword(node.pointer,
                                 "maxProperties is not supported beside properties that are named");
    return {};
  }

  // Members whose keys are free.
  Result<Expr> map_of(const Node& node, const Expr& member) {
    const uint64_t most = node.max_members.value_or(kUnlimited);
    const Expr list =
        most == 0 ? nothing() : list_of(member, 0, most >= kUnlimited ? kUnlimited : most - 1);
    return rules_.in_brackets('{', list, node.min_members == 0, '}');
  }

  // One, and between `least` and `most` more.
  Expr list_of(const Expr& one, uint64_t least, uint64_t most) {
    return sequence({one, repeat(sequence({rules_.comma(), one}), static_cast<uint32_t>(least),
                                 static_cast<uint32_t>(std::min<uint64_t>(most, kUnlimited)))});
  }

  Result<Expr> array_of(const Node& node) {
    if (node.min_items > kMostCount)
      return unsupported_keyword(node.pointer, str_cat("minItems above ", kMostCount));
    const uint64_t most = std::min<uint64_t>(node.max_items.value_or(kUnlimited), kUnlimited);
    if (node.min_items > most) return nothing();
    size_t first = 0;
    for (const Node::Items& part : node.items) first = std::max(first, part.first.size());
    if (first > kMostFirstItems)
      return schema_error(node.pointer, str_cat("more than ", kMostFirstItems, " prefixItems"));
    first = std::min<size_t>(first, most);
    const bool closed =
        is_closed(node.items, [](const Node::Items& part) { return !part.first.empty(); });
    Expr other = nothing();
    if (!closed && most > first) {
      TRY_ASSIGN(other, values_of(node.other_items()));
    }

    GraphBuilder graph;
    uint32_t at = GraphBuilder::kBegin;
    for (size_t i = 0; i < first; ++i) {
      TRY_ASSIGN(Expr item, values_of(node.item(i)));
      const uint32_t next = graph.add_node();
      graph.add(at, next, i == 0 ? item : sequence({rules_.comma(), item}));
      if (i + 1 >= node.min_items) graph.add(next, GraphBuilder::kEnd, literal(""));
      at = next;
    }
    const auto left = [most](uint64_t used) { return most == kUnlimited ? most : most - used; };
    const auto missing = [&node](uint64_t used) {
      return node.min_items > used ? node.min_items - used : 0;
    };
    if (first == 0 && most > 0) {
      graph.add(at, GraphBuilder::kEnd, list_of(other, missing(1), left(1)));
    } else if (first > 0 && most > first) {
      graph.add(at, GraphBuilder::kEnd,
                repeat(sequence({rules_.comma(), other}), static_cast<uint32_t>(missing(first)),
                       static_cast<uint32_t>(left(first))));
    }
    return rules_.in_brackets('[', std::move(graph).build(), node.min_items == 0, ']');
  }

  const Json& document_;
  const SchemaOptions& options_;
  Grammar& grammar_;
  JsonRules& rules_;
  SchemaReader reader_;
  std::map<std::vector<const Json*>, RuleId> known_;
  std::deque<Open> open_;
};

}  // namespace

Result<Expr> add_schema(const Json& schema, const SchemaOptions& options, Grammar& grammar,
                        JsonRules& rules) {
  return add_schema_part(schema, {{&schema, "#"}}, options, grammar, rules);
}

Result<Expr> add_schema_part(const Json& document, const Requirements& part,
                             const SchemaOptions& options, Grammar& grammar, JsonRules& rules) {
  SchemaCompiler compiler(document, options, grammar, rules);
  TRY_ASSIGN(Expr values, compiler.values_of(part));
  TRY(compiler.finish());
  return values;
}

}  // namespace pewter::grammar
