#include "grammar/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>

#include "grammar/contains_schema.h"
#include "grammar/limits.h"
#include "grammar/multiple_of.h"
#include "grammar/object_schema.h"
#include "grammar/reader.h"
#include "grammar/string_schema.h"

namespace pewter::grammar {
namespace {

constexpr size_t kMostFirstItems = 1024, kMostUnique = 64;
constexpr uint64_t kMostCount = 1 << 20;

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

  Result<Expr> way_of(Node node) {
    const uint8_t types = types_of(node);
    TRY(take_empty(node, types));
    if (node.values) return constants_of(node, *node.values, types);
    std::vector<Expr> parts;
    if ((types & Node::kObject) != 0) {
      TRY_ASSIGN(Expr part, object_of(node, context()));
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
    if ((types & (Node::kInteger | Node::kFraction)) != 0) {
      TRY_ASSIGN(Expr part, number_of(node, types));
      parts.push_back(std::move(part));
    }
    const auto add_constant = [&](const Json& value) {
      if (!is_excluded(node, value)) parts.push_back(literal(value.dump()));
    };
    if ((types & Node::kBoolean) != 0) {
      add_constant(true);
      add_constant(false);
    }
    if ((types & Node::kNull) != 0) add_constant(nullptr);
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

  static bool is_excluded(const Node& node, const Json& value) {
    return std::ranges::any_of(node.excluded,
                               [&](const Json& other) { return same_value(value, other); });
  }

  // Of arrays and objects only the empty ones can be excluded.
  static Status take_empty(Node& node, uint8_t types) {
    for (const Json& value : node.excluded) {
      if (value.is_array() && (types & Node::kArray) != 0 && !node.values) {
        if (!value.as_array().empty())
          return unsupported_keyword(node.pointer, "not is not supported with a list in it");
        node.min_items = std::max<uint64_t>(node.min_items, 1);
      }
      if (value.is_object() && (types & Node::kObject) != 0 && !node.values) {
        if (!value.as_object().empty())
          return unsupported_keyword(node.pointer, "not is not supported with an object in it");
        node.min_members = std::max<uint64_t>(node.min_members, 1);
      }
    }
    return {};
  }

  // Whether a constant satisfies the other keywords.
  Result<bool> satisfies(const Node& node, uint8_t types, const Json& value,
                         std::unique_ptr<const Automaton>& rest) {
    if (is_excluded(node, value)) return false;
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
        if (!right_type || !contains(node.range, decimal)) return false;
        return std::ranges::all_of(node.steps,
                                   [&](const Decimal& step) { return is_multiple(decimal, step); });
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
    node.excluded.clear();
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

  Result<Expr> number_of(const Node& node, uint8_t types) {
    const bool integer = (types & Node::kFraction) == 0, fraction = (types & Node::kInteger) == 0;
    std::vector<Decimal> excluded;
    for (const Json& value : node.excluded)
      if (value.is_number()) {
        TRY_ASSIGN(excluded.emplace_back(), to_decimal(value));
      }
    const bool is_plain = node.steps.empty() && excluded.empty() && !fraction;
    if (is_plain && !node.range.least && !node.range.most)
      return integer ? rules_.integer() : rules_.number();
    NumberRange range = node.range;
    range.integer = integer;
    Result<Expr> numbers = numbers_in(range);
    if (numbers && fraction) numbers = fractions_in(*numbers);
    if (numbers && !is_plain) numbers = multiples_in(*numbers, node.steps, excluded, integer);
    if (!numbers) return numbers.error().within(node.pointer);
    return numbers;
  }

  MemberContext context() {
    return {.rules = rules_,
            .narrow = options_.narrow,
            .values_of = [this](Requirements all) { return values_of(std::move(all)); },
            .read = [this](const Requirements& all) { return reader_.read(all); }};
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
    const bool closed = options_.narrow && is_closed(node.items, [](const Node::Items& part) {
                          return !part.first.empty();
                        });
    if (!node.contains.empty()) return containing(node, closed);
    if (node.unique_items && (closed ? std::min<uint64_t>(first, most) : most) > 1)
      return unique_items(node, first, most);
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
      graph.add(at, GraphBuilder::kEnd, comma_list(rules_, other, missing(1), left(1)));
    } else if (first > 0 && most > first) {
      graph.add(at, GraphBuilder::kEnd,
                repeat(sequence({rules_.comma(), other}), static_cast<uint32_t>(missing(first)),
                       static_cast<uint32_t>(left(first))));
    }
    return rules_.in_brackets('[', std::move(graph).build(), node.min_items == 0, ']');
  }

  Result<Expr> containing(Node node, bool closed) {
    if (node.contains.size() > 1 || (node.unique_items && node.max_items.value_or(2) > 1))
      return unsupported_keyword(
          node.pointer, "contains is not supported beside uniqueItems or another contains");
    if (closed) {
      uint64_t first = 0;
      for (const Node::Items& part : node.items)
        first = std::max<uint64_t>(first, part.first.size());
      node.max_items = std::min(node.max_items.value_or(first), first);
    }
    const Node::Contains contains = node.contains.front();
    const Result<SchemaRef> not_one = reader_.contrary(contains.ref);
    if (!not_one && contains.most) return not_one.error();
    return containing_array(node, contains, not_one ? std::optional(*not_one) : std::nullopt,
                            context());
  }

  // The values of a node that has few of them.
  Result<std::vector<Json>> few_values(const Requirements& requirements, const Node& array) {
    std::vector<Json> few;
    const Error refused = unsupported_keyword(
        array.pointer, str_cat("uniqueItems is supported where items are of at most ", kMostUnique,
                               " values: enum, const, booleans, null"));
    TRY_ASSIGN(const std::vector<Node> nodes, reader_.read(requirements));
    const auto add = [&few](const Json& value) {
      if (std::ranges::none_of(few, [&](const Json& other) { return same_value(value, other); }))
        few.push_back(value);
    };
    for (const Node& node : nodes) {
      const uint8_t types = types_of(node);
      if (node.values) {
        std::unique_ptr<const Automaton> rest;
        for (const Json& value : *node.values) {
          TRY_ASSIGN(const bool fits, satisfies(node, types, value, rest));
          if (fits && (value.is_array() || value.is_object())) return refused;
          if (fits) add(value);
        }
      } else if ((types & ~(Node::kBoolean | Node::kNull)) == 0) {
        for (const Json& value : {Json(true), Json(false)})
          if ((types & Node::kBoolean) != 0 && !is_excluded(node, value)) add(value);
        if ((types & Node::kNull) != 0 && !is_excluded(node, nullptr)) add(nullptr);
      } else {
        return refused;
      }
    }
    if (few.size() > kMostUnique) return refused;
    return few;
  }

  // Items that all differ: each value has a mark of the list's rule, which is set once.
  Result<Expr> unique_items(const Node& node, size_t first, uint64_t most) {
    if (first > 0)
      return unsupported_keyword(node.pointer, "uniqueItems is not supported beside prefixItems");
    TRY_ASSIGN(const std::vector<Json> values, few_values(node.other_items(), node));
    most = std::min<uint64_t>(most, values.size());
    if (node.min_items > most) return nothing();
    std::vector<Expr> items;
    uint64_t all = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      items.push_back(sequence({mark(static_cast<uint32_t>(i)), rules_.constant(values[i])}));
      all |= uint64_t{1} << i;
    }
    const Expr item = choice(std::move(items));
    GraphBuilder graph;
    if (node.min_items <= 1 && most == values.size()) {
      // No need to count: where nothing is left, no comma comes.
      const uint32_t behind = graph.add_node();
      graph.add(GraphBuilder::kBegin, behind, item);
      graph.add(behind, behind, sequence({unmarked(all), rules_.comma(), item}));
      graph.add(behind, GraphBuilder::kEnd, literal(""));
    } else {
      uint32_t at = GraphBuilder::kBegin;
      for (uint64_t n = 1; n <= most; ++n) {
        const uint32_t next = graph.add_node();
        graph.add(at, next, n == 1 ? item : sequence({rules_.comma(), item}));
        if (n >= node.min_items) graph.add(next, GraphBuilder::kEnd, literal(""));
        at = next;
      }
    }
    const RuleId list = grammar_.add(node.pointer, std::move(graph).build());
    return rules_.in_brackets('[', most == 0 ? nothing() : rule(list), node.min_items == 0, ']');
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
