#include "grammar/object_schema.h"

#include <algorithm>

#include "grammar/nfa.h"
#include "grammar/regex.h"
#include "grammar/string_schema.h"

namespace pewter::grammar {
namespace {

constexpr size_t kMostKeys = 2048, kMostPatterns = 5;
constexpr uint64_t kMostNodes = 1 << 14;
constexpr uint32_t kMostKeyStates = 1 << 15;

using Node = SchemaNode;
using Dfa = std::shared_ptr<const ByteDfa>;

bool is_nothing(const Expr& expr) { return expr->kind == Expression::Kind::kNothing; }

const TextWriting& plain_writing() {
  static const TextWriting writing{.encode = characters, .any = characters({{0, 0x10FFFF}})};
  return writing;
}
const TextWriting& json_writing() {
  static const TextWriting writing{.encode = json_characters, .any = any_json_character()};
  return writing;
}

bool accepts_nothing(const ByteDfa& dfa) {
  return std::ranges::all_of(dfa.states, [](const ByteDfa::State& state) { return state.end < 0; });
}

// Keys that propertyNames admits.
struct KeyNames {
  bool any = true;                  // all of them
  std::vector<std::string> listed;  // or these, and no others unless there are texts
  Dfa plain, json;                  // texts, as they are and as JSON writes them
  bool admits(const std::string& key) const {
    return any || std::ranges::find(listed, key) != listed.end() || (plain && accepts(*plain, key));
  }
};

class ObjectWriter {
 public:
  ObjectWriter(const Node& node, const MemberContext& context) : node_(node), context_(context) {}
  Result<Expr> write();

 private:
  Status read_names();
  // Keys with members of their own, and what follows from patterns and lists.
  Status collect_keys();
  bool names_are_all() const {
    return context_.narrow && node_.unevaluated.empty() &&
           is_closed(node_.members, [](const Node::Members& part) {
             return !part.is_open && (!part.named.empty() || !part.patterns.empty());
           });
  }
  // A member whose key is none of keys_.
  Result<Expr> other_member();
  // The same, of the keys in which exactly the patterns of a set are found.
  Result<Expr> class_member(const std::vector<std::shared_ptr<const KeyPattern>>& patterns,
                            uint32_t found, const Dfa& keys);
  Result<Dfa> other_keys() const;
  Result<Expr> named_member(const std::string& key);
  Result<Expr> in_order(const Expr& other);
  Result<Expr> free(const Expr& other) const;

  const Node& node_;
  const MemberContext& context_;
  KeyNames names_;
  std::vector<std::string> keys_;
};

// What the key of a member may be, of every schema of propertyNames.
Status ObjectWriter::read_names() {
  std::vector<SchemaRef> about;
  for (const SchemaRef& ref : node_.key_schemas)
    if (!(ref.schema->is_bool() && ref.schema->as_bool())) about.push_back(ref);
  if (about.empty()) return {};
  TRY_ASSIGN(const std::vector<Node> ways, context_.read(about));
  names_.any = false;
  std::vector<Expr> plain, json;
  for (const Node& way : ways) {
    if ((way.types & Node::kString) == 0) continue;
    if (way.values) {
      for (const Json& value : *way.values) {
        TRY_ASSIGN(const bool fits, admits_text(way, value));
        if (fits) names_.listed.push_back(value.as_string());
      }
      continue;
    }
    if (!restricts_text(way)) {
      names_ = {};
      return {};
    }
    TRY_ASSIGN(Expr text, text_of(way, plain_writing()));
    plain.push_back(std::move(text));
    TRY_ASSIGN(text, text_of(way, json_writing()));
    json.push_back(std::move(text));
  }
  if (plain.empty()) return {};
  const ByteDfaOptions limits{.most_states = kMostKeyStates};
  const auto at = [this](const Error& error) { return error.within(node_.pointer); };
  const auto one = make_byte_dfa({choice(std::move(plain))}, limits);
  if (!one) return at(one.error());
  const auto other = make_byte_dfa({choice(std::move(json))}, limits);
  if (!other) return at(other.error());
  names_.plain = *one;
  names_.json = *other;
  return {};
}

Status ObjectWriter::collect_keys() {
  keys_ = node_.keys();
  // Keys that can be listed are, so that each comes once.
  if (!names_.any && !names_are_all())
    for (const std::string& key : names_.listed)
      if (std::ranges::find(keys_, key) == keys_.end()) keys_.push_back(key);
  if (keys_.size() > kMostKeys)
    return schema_error(node_.pointer, str_cat("more than ", kMostKeys, " properties"));
  return {};
}

Result<Expr> ObjectWriter::named_member(const std::string& key) {
  if (!names_.admits(key)) return nothing();
  TRY_ASSIGN(Expr value, context_.values_of(node_.member(key)));
  if (is_nothing(value)) return value;
  return context_.rules.member(json_string_literal(key), std::move(value));
}

// Quotes included, written in the one usual way, so that no named key comes in disguise.
Result<Dfa> ObjectWriter::other_keys() const {
  const ByteDfaOptions limits{.most_states = kMostKeyStates};
  const Expr text = names_.json ? dfa(names_.json, {literal("")})
                                : repeat(json_characters({{0, 0x10FFFF}}), 0, kUnlimited);
  TRY_ASSIGN(Dfa keys, make_byte_dfa({sequence({literal("\""), text, literal("\"")})}, limits));
  if (keys_.empty()) return keys;
  std::vector<Expr> named;
  named.reserve(keys_.size());
  for (const std::string& name : keys_) named.push_back(json_string_literal(name));
  TRY_ASSIGN(const Dfa taken, make_byte_dfa({choice(std::move(named))}, limits));
  return difference(*keys, *taken, kMostKeyStates);
}

Result<Expr> ObjectWriter::class_member(
    const std::vector<std::shared_ptr<const KeyPattern>>& patterns, uint32_t found,
    const Dfa& keys) {
  Dfa these = keys;
  for (size_t i = 0; i < patterns.size(); ++i) {
    TRY_ASSIGN(const Expr text, parse_regex(patterns[i]->source, {.encode = json_characters}));
    TRY_ASSIGN(const Dfa with, make_byte_dfa({sequence({literal("\""), text, literal("\"")})}, {}));
    const bool is_found = (found >> i & 1) != 0;
    auto kept = is_found ? intersection(*these, *with, kMostKeyStates)
                         : difference(*these, *with, kMostKeyStates);
    if (!kept) return kept.error().within(node_.pointer);
    these = *std::move(kept);
  }
  if (accepts_nothing(*these)) return nothing();
  Requirements all;
  for (const Node::Members& part : node_.members) {
    bool is_other = true;
    for (const auto& [pattern, ref] : part.patterns) {
      const auto at = std::ranges::find(patterns, pattern);
      if ((found >> (at - patterns.begin()) & 1) == 0) continue;
      all.push_back(ref);
      is_other = false;
    }
    if (is_other && part.others) all.push_back(*part.others);
  }
  const auto is_spoken_of = [&](const Node::Members& part) {
    return part.others || std::ranges::any_of(part.patterns, [&](const auto& one) {
             const auto at = std::ranges::find(patterns, one.first);
             return (found >> (at - patterns.begin()) & 1) != 0;
           });
  };
  for (const Node::Unevaluated& rest : node_.unevaluated)
    if (std::ranges::none_of(node_.members, [&](const Node::Members& part) {
          return rest.evaluates(part) && is_spoken_of(part);
        }))
      all.push_back(rest.others);
  if (found == 0 && names_are_all()) return nothing();
  TRY_ASSIGN(Expr value, context_.values_of(std::move(all)));
  if (is_nothing(value)) return value;
  return context_.rules.member(dfa(std::move(these), {literal("")}), std::move(value));
}

Result<Expr> ObjectWriter::other_member() {
  if (!names_.any && !names_.json) return nothing();
  std::vector<std::shared_ptr<const KeyPattern>> patterns;
  for (const Node::Members& part : node_.members)
    for (const auto& [pattern, ref] : part.patterns)
      if (std::ranges::find(patterns, pattern) == patterns.end()) patterns.push_back(pattern);
  if (patterns.size() > kMostPatterns)
    return unsupported_keyword(node_.pointer,
                               str_cat("more than ", kMostPatterns, " patterns of properties"));
  if (patterns.empty() && keys_.empty() && names_.any) {
    if (names_are_all()) return nothing();
    TRY_ASSIGN(Expr value, context_.values_of(node_.other_members()));
    return is_nothing(value) ? value
                             : context_.rules.member(context_.rules.string(), std::move(value));
  }
  if (patterns.empty()) {  // before the keys are worked out
    if (names_are_all()) return nothing();
    TRY_ASSIGN(const Expr value, context_.values_of(node_.other_members()));
    if (is_nothing(value)) return value;
  }
  const Result<Dfa> keys = other_keys();
  if (!keys) return keys.error().within(node_.pointer);
  std::vector<Expr> classes;
  for (uint32_t found = 0; found < uint32_t{1} << patterns.size(); ++found) {
    TRY_ASSIGN(Expr member, class_member(patterns, found, *keys));
    if (!is_nothing(member)) classes.push_back(std::move(member));
  }
  return choice(std::move(classes));
}

Result<Expr> ObjectWriter::write() {
  TRY(read_names());
  TRY(collect_keys());
  TRY_ASSIGN(const Expr other, other_member());
  if (node_.max_members && node_.min_members > *node_.max_members) return nothing();
  return keys_.empty() ? free(other) : in_order(other);
}

// Members whose keys are free, and may come twice.
Result<Expr> ObjectWriter::free(const Expr& other) const {
  if (node_.min_members > 1)
    return unsupported_keyword(
        node_.pointer, "minProperties above 1 is not supported where no properties are named");
  const uint64_t most = node_.max_members.value_or(kUnlimited);
  const Expr list =
      most == 0 ? nothing()
                : comma_list(context_.rules, other, 0, most >= kUnlimited ? kUnlimited : most - 1);
  return context_.rules.in_brackets('{', list, node_.min_members == 0, '}');
}

// Members in the order of keys_, and others behind them. Nodes of a graph, for each number of
// members that counts: must[i], where a member comes of the keys from i on or an other one, and
// may[i], where one has come.
Result<Expr> ObjectWriter::in_order(const Expr& other) {
  const size_t count = keys_.size();
  const std::set<std::string_view> required(node_.required.begin(), node_.required.end());
  const bool is_open = !is_nothing(other);
  // Others may repeat a key: behind the named ones, they count once towards the least.
  const uint64_t least = node_.min_members > required.size() ? node_.min_members : 0;
  const bool has_most = node_.max_members && (is_open || *node_.max_members < count);
  const uint64_t most = has_most ? *node_.max_members : kUnlimited;
  if (least > count + (is_open ? 1 : 0))
    return is_open ? unsupported_keyword(
                         node_.pointer,
                         "minProperties is supported up to one more than properties are named")
                   : Result<Expr>(nothing());
  const uint64_t levels = std::max<uint64_t>({has_most ? most : 0, least, 1}) + 1;
  if (levels * 2 * (count + 1) > kMostNodes)
    return unsupported_keyword(node_.pointer,
                               "minProperties or maxProperties that large is not "
                               "supported beside so many properties");
  GraphBuilder graph;
  std::vector<std::vector<uint32_t>> must(count + 1), may(count + 1);
  for (size_t i = 0; i <= count; ++i)
    for (uint64_t n = 0; n < levels; ++n) {
      must[i].push_back(graph.add_node());
      may[i].push_back(graph.add_node());
    }
  graph.add(GraphBuilder::kBegin, must[0][0], literal(""));
  size_t last_required = 0;  // and all before it are behind us from here on
  for (size_t i = 0; i < count; ++i)
    if (required.contains(keys_[i])) last_required = i + 1;
  for (size_t i = 0; i <= count; ++i) {
    Expr member = nothing();
    if (i < count) {
      TRY_ASSIGN(member, named_member(keys_[i]));
    }
    for (uint64_t n = 0; n < levels; ++n) {
      const uint64_t next = std::min(n + 1, levels - 1);
      if (i < count && n < most) graph.add(must[i][n], may[i + 1][next], member);
      if (i < count && !required.contains(keys_[i]))
        graph.add(must[i][n], must[i + 1][n], literal(""));
      if (n == 0) continue;
      if ((i < count || is_open) && n < most)
        graph.add(may[i][n], must[i][n], context_.rules.comma());
      if (i >= last_required && n >= least) graph.add(may[i][n], GraphBuilder::kEnd, literal(""));
    }
  }
  for (uint64_t n = 0; is_open && n < levels && n < most; ++n)
    if (n + 1 >= least)
      graph.add(must[count][n], GraphBuilder::kEnd,
                comma_list(context_.rules, other, 0, has_most ? most - n - 1 : kUnlimited));
  return context_.rules.in_brackets('{', std::move(graph).build(),
                                    required.empty() && node_.min_members == 0, '}');
}

}  // namespace

Result<Expr> object_of(const SchemaNode& node, const MemberContext& context) {
  return ObjectWriter(node, context).write();
}

Expr comma_list(JsonRules& rules, const Expr& one, uint64_t least, uint64_t most) {
  return sequence({one, repeat(sequence({rules.comma(), one}), static_cast<uint32_t>(least),
                               static_cast<uint32_t>(std::min<uint64_t>(most, kUnlimited)))});
}

}  // namespace pewter::grammar
