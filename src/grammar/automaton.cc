#include "grammar/automaton.h"

#include <algorithm>

#include "grammar/limits.h"

namespace pewter::grammar {
namespace {

using Kind = Action::Kind;

Error invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

template <typename T>
void append_bytes(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::span<const ByteDfa::Edge> edges_of(const std::vector<ByteDfa::Edge>& edges,
                                        const std::vector<uint32_t>& begins, uint32_t state) {
  return std::span(edges).subspan(begins[state], begins[state + 1] - begins[state]);
}

}  // namespace

Result<Automaton> Automaton::compile(Grammar grammar) {
  CHECK(!grammar.rules.empty(), "a grammar without rules");
  if (grammar.rules.size() > kMostRules) return invalid("too large: the number of rules");
  Automaton automaton;
  RuleCompiler compiler(grammar);
  Rules rules;
  std::vector<ByteDfa::Edge> edges;
  std::vector<uint32_t> edge_begins = {0, 0};  // of the dead state
  automaton.states_.emplace_back();
  for (RuleId id = 0; id < grammar.rules.size(); ++id) {  // compiling may add some
    TRY_ASSIGN(RuleDfa dfa, compiler.compile(id));
    if (automaton.states_.size() + dfa.states.size() > kMostStates)
      return invalid("too large: its states");
    const uint32_t base = automaton.append(dfa, id, edges, edge_begins);
    automaton.rule_starts_.push_back(base);
    automaton.rule_begins_.push_back(base);
    rules.push_back(std::move(dfa));
  }
  automaton.loops_ = compiler.loops();
  automaton.find_heights(edges, edge_begins);
  if (automaton.height(automaton.start()) == kNoHeight)
    return invalid(str_cat(grammar.rules[0].name, ": no text matches it"));
  if (automaton.height(automaton.start()) >= kDeepest)
    return invalid("too deep: every text has more levels than the limit");
  TRY(automaton.refuse_left_recursion(compiler, grammar));
  automaton.drop_dead_actions();
  automaton.find_loops(edges, edge_begins);
  TRY(automaton.make_table(edges, edge_begins));
  automaton.describe_closed_rules(rules);
  return automaton;
}

uint32_t Automaton::append(const RuleDfa& dfa, uint32_t rule, std::vector<ByteDfa::Edge>& edges,
                           std::vector<uint32_t>& edge_begins) {
  const uint32_t base = size();
  for (const RuleDfa::State& from : dfa.states) {
    State& state = states_.emplace_back();
    state.rule = rule;
    state.first_action = static_cast<uint32_t>(actions_.size());
    state.action_count = static_cast<uint32_t>(from.actions.size());
    for (Action action : from.actions) {
      action.target += base;
      action.other += base;
      actions_.push_back(action);
    }
    for (ByteDfa::Edge edge : from.edges) {
      edge.target += base;
      edges.push_back(edge);
    }
    edge_begins.push_back(static_cast<uint32_t>(edges.size()));
  }
  return base;
}

// A state's height as its neighbours' heights have it so far.
uint32_t Automaton::height_now(uint32_t state, std::span<const ByteDfa::Edge> edges) const {
  uint32_t least = kNoHeight;
  for (const ByteDfa::Edge& edge : edges) least = std::min(least, height(edge.target));
  for (const Action& action : actions(state)) {
    switch (action.kind) {
      case Kind::kEnd:
        return 0;
      case Kind::kCall: {
        const uint32_t inside = height(rule_starts_[action.index]);
        if (inside != kNoHeight)
          least = std::min(least, std::max(inside + 1, height(action.target)));
        break;
      }
      case Kind::kEnter: {
        const uint32_t body = loops_[action.index].least > 0 ? height(action.target) : 0;
        least = std::min(least, std::max(body, height(action.other)));
        break;
      }
      case Kind::kNext:  // what was read once can be read again
        least = std::min(least, height(action.other));
        break;
      default:
        least = std::min(least, height(action.target));
    }
  }
  return least;
}

// Heights only fall; a state is looked at again when one that it depends on has fallen.
void Automaton::find_heights(const std::vector<ByteDfa::Edge>& edges,
                             const std::vector<uint32_t>& edge_begins) {
  std::vector<std::vector<uint32_t>> dependents(states_.size());
  for (uint32_t state = 1; state < size(); ++state) {
    for (const ByteDfa::Edge& edge : edges_of(edges, edge_begins, state))
      dependents[edge.target].push_back(state);
    for (const Action& action : actions(state)) {
      if (action.kind == Kind::kEnd) continue;
      dependents[action.target].push_back(state);
      if (action.kind == Kind::kCall) dependents[rule_starts_[action.index]].push_back(state);
      if (action.kind == Kind::kEnter || action.kind == Kind::kNext)
        dependents[action.other].push_back(state);
    }
  }
  std::vector<uint32_t> queue;
  for (uint32_t state = 1; state < size(); ++state)
    if (std::ranges::any_of(actions(state),
                            [](const Action& action) { return action.kind == Kind::kEnd; }))
      queue.push_back(state);
  // In waves, so that low heights are found first and most states are settled once.
  while (!queue.empty()) {
    std::vector<uint32_t> next;
    for (const uint32_t state : queue) {
      const uint32_t now = height_now(state, edges_of(edges, edge_begins, state));
      if (now >= states_[state].height) continue;
      states_[state].height = now;
      next.insert(next.end(), dependents[state].begin(), dependents[state].end());
    }
    std::ranges::sort(next);
    next.erase(std::unique(next.begin(), next.end()), next.end());
    queue = std::move(next);
  }
}

// A cycle of moves that read nothing and enter a rule would go on for ever: Tarjan's strongly
// connected components over such moves.
Status Automaton::refuse_left_recursion(const RuleCompiler& compiler,
                                        const Grammar& grammar) const {
  struct Move {
    uint32_t to;
    bool enters;
  };
  const auto moves_of = [&](uint32_t state) {
    std::vector<Move> moves;
    for (const Action& action : actions(state)) {
      if (action.kind == Kind::kEnd) continue;
      if (action.kind == Kind::kCall) moves.push_back({rule_starts_[action.index], true});
      if (action.kind != Kind::kCall || compiler.nullable(action.index))
        moves.push_back({action.target, false});
      if (action.kind == Kind::kEnter || action.kind == Kind::kNext)
        moves.push_back({action.other, false});
    }
    return moves;
  };
  struct Frame {
    uint32_t state;
    std::vector<Move> moves;
    size_t next = 0;
  };
  std::vector<uint32_t> order(states_.size(), 0), low(states_.size(), 0), component(size(), 0);
  std::vector<uint32_t> open;
  std::vector<Frame> stack;
  uint32_t counter = 0, components = 0;
  const auto visit = [&](uint32_t state) {
    order[state] = low[state] = ++counter;
    open.push_back(state);
    stack.push_back({state, moves_of(state)});
  };
  for (uint32_t root = 1; root < size(); ++root) {
    if (order[root] != 0) continue;
    visit(root);
    while (!stack.empty()) {
      Frame& frame = stack.back();
      const uint32_t state = frame.state;
      if (frame.next < frame.moves.size()) {
        const uint32_t to = frame.moves[frame.next++].to;
        if (order[to] == 0)
          visit(to);
        else if (component[to] == 0)
          low[state] = std::min(low[state], order[to]);
        continue;
      }
      stack.pop_back();
      if (!stack.empty()) low[stack.back().state] = std::min(low[stack.back().state], low[state]);
      if (low[state] != order[state]) continue;
      ++components;
      uint32_t member = 0;
      do {
        member = open.back();
        open.pop_back();
        component[member] = components;
      } while (member != state);
    }
  }
  for (uint32_t state = 1; state < size(); ++state)
    for (const Move& move : moves_of(state))
      if (move.enters && component[move.to] == component[state])
        return invalid(str_cat(grammar.rules[states_[state].rule].name,
                               ": it calls itself before it has read anything"));
  return {};
}

// What leads to a state without a height leads nowhere.
void Automaton::drop_dead_actions() {
  std::vector<Action> kept;
  for (State& state : states_) {
    const auto begin = static_cast<uint32_t>(kept.size());
    for (uint32_t i = state.first_action; i < state.first_action + state.action_count; ++i) {
      const Action& action = actions_[i];
      bool alive = true;
      if (action.kind == Kind::kCall)
        alive =
            height(rule_starts_[action.index]) != kNoHeight && height(action.target) != kNoHeight;
      else if (action.kind == Kind::kEnter || action.kind == Kind::kNext)
        alive = height(action.other) != kNoHeight;
      else if (action.kind != Kind::kEnd)
        alive = height(action.target) != kNoHeight;
      if (alive) kept.push_back(action);
    }
    state.first_action = begin;
    state.action_count = static_cast<uint32_t>(kept.size()) - begin;
  }
  actions_ = std::move(kept);
}

void Automaton::find_loops(const std::vector<ByteDfa::Edge>& edges,
                           const std::vector<uint32_t>& edge_begins) {
  std::vector<std::pair<uint32_t, int32_t>> queue;
  for (const Action& action : actions_)
    if (action.kind == Kind::kEnter)
      queue.emplace_back(action.target, static_cast<int32_t>(action.index));
  while (!queue.empty()) {
    const auto [state, loop] = queue.back();
    queue.pop_back();
    // All that leads nowhere is one state, whatever repeat it was cut from.
    if (states_[state].loop == loop || height(state) == kNoHeight) continue;
    CHECK(states_[state].loop < 0, "a state in two counted repeats");
    states_[state].loop = loop;
    for (const ByteDfa::Edge& edge : edges_of(edges, edge_begins, state))
      queue.emplace_back(edge.target, loop);
    for (const Action& action : actions(state))
      if (action.kind == Kind::kCall) queue.emplace_back(action.target, loop);
  }
}

// Bytes that no state tells apart share a class, so that the table is narrow.
Status Automaton::make_table(const std::vector<ByteDfa::Edge>& edges,
                             const std::vector<uint32_t>& edge_begins) {
  std::bitset<257> borders;
  borders.set(0);
  for (const ByteDfa::Edge& edge : edges) {
    borders.set(edge.first);
    borders.set(size_t{edge.last} + 1);
  }
  std::vector<uint8_t> first_bytes;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (borders.test(byte)) first_bytes.push_back(static_cast<uint8_t>(byte));
    class_of_[byte] = static_cast<uint8_t>(first_bytes.size() - 1);
  }
  class_count_ = static_cast<uint32_t>(first_bytes.size());
  if (uint64_t{size()} * class_count_ > kMostTableEntries)
    return invalid("too large: its table of states and bytes");
  table_.assign(size_t{size()} * class_count_, kDead);
  for (uint32_t state = 1; state < size(); ++state) {
    State& s = states_[state];
    for (const ByteDfa::Edge& edge : edges_of(edges, edge_begins, state)) {
      if (height(edge.target) == kNoHeight) continue;
      for (uint32_t c = class_of_[edge.first]; c <= class_of_[edge.last]; ++c)
        table_[size_t{state} * class_count_ + c] = edge.target;
      s.reads = true;
    }
    s.only_ends = !s.reads && s.action_count == 1 && actions_[s.first_action].kind == Kind::kEnd;
  }
  return {};
}

void Automaton::describe_closed_rules(const Rules& rules) {
  for (const RuleDfa& rule : rules) {
    std::string& text = closed_rules_.emplace_back();
    const bool calls = std::ranges::any_of(rule.states, [](const RuleDfa::State& state) {
      return std::ranges::any_of(state.actions,
                                 [](const Action& a) { return a.kind == Kind::kCall; });
    });
    if (calls) continue;
    for (const RuleDfa::State& state : rule.states) {
      append_bytes(text, static_cast<uint32_t>(state.edges.size()));
      for (const ByteDfa::Edge& edge : state.edges) {
        append_bytes(text, edge.first);
        append_bytes(text, edge.last);
        append_bytes(text, edge.target);
      }
      append_bytes(text, static_cast<uint32_t>(state.actions.size()));
      for (const Action& action : state.actions) {
        append_bytes(text, action.kind);
        append_bytes(text, action.target);
        append_bytes(text, action.other);
        append_bytes(text, action.marks);
        const bool loops = action.kind == Kind::kEnter || action.kind == Kind::kNext;
        if (loops) {
          append_bytes(text, loops_[action.index].least);
          append_bytes(text, loops_[action.index].most);
        }
        if (action.kind == Kind::kMark) append_bytes(text, action.index);
      }
    }
  }
}

const std::string* Automaton::closed_rule(uint32_t state) const {
  const std::string& text = closed_rules_[states_[state].rule];
  return text.empty() ? nullptr : &text;
}

}  // namespace pewter::grammar
