// Automaton: a compiled grammar, a pushdown automaton over bytes. Each rule is deterministic in
// what it reads; calling rules, counting and marks are actions of its states, taken before the next
// byte. States from which no text can be completed are cut, so whatever is still possible can be
// finished.
#pragma once

#include <array>
#include <span>

#include "grammar/nfa.h"

namespace pewter::grammar {

class Automaton {
 public:
  // Errors: kInvalidArgument when a limit is passed, when a rule calls itself before it has read
  // anything, or when no text at all matches.
  static Result<Automaton> compile(Grammar grammar);

  static constexpr uint32_t kDead = 0;
  uint32_t start() const { return rule_starts_[0]; }
  uint32_t rule_start(uint32_t rule) const { return rule_starts_[rule]; }
  uint32_t size() const { return static_cast<uint32_t>(states_.size()); }

  int64_t bytes() const {
    return static_cast<int64_t>(table_.size() * sizeof(table_[0]) +
                                states_.size() * sizeof(states_[0]) +
                                actions_.size() * sizeof(actions_[0]));
  }

  uint32_t next(uint32_t state, uint8_t byte) const {
    return table_[state * class_count_ + class_of_[byte]];
  }
  // Bytes of one class are the same to every state.
  uint8_t class_of(uint8_t byte) const { return class_of_[byte]; }
  uint32_t class_count() const { return class_count_; }
  bool reads(uint32_t state) const { return states_[state].reads; }
  std::span<const Action> actions(uint32_t state) const {
    const State& s = states_[state];
    return {actions_.data() + s.first_action, s.action_count};
  }
  bool has_actions(uint32_t state) const { return states_[state].action_count > 0; }
  // Its only way on is the end of its rule.
  bool only_ends(uint32_t state) const { return states_[state].only_ends; }
  // The fewest rules that must be entered, one inside the other, to reach the end of the rule.
  uint32_t height(uint32_t state) const { return states_[state].height; }
  // The counted repeat whose body the state is in, or -1.
  int32_t loop_of(uint32_t state) const { return states_[state].loop; }
  const Loop& loop(uint32_t index) const { return loops_[index]; }
  // Where the state's rule calls no other: a text that says all there is to know of it, and the
  // state's number in it. Null otherwise.
  const std::string* closed_rule(uint32_t state) const;
  uint32_t first_state_of_rule(uint32_t state) const { return rule_begins_[states_[state].rule]; }

 private:
  static constexpr uint32_t kNoHeight = UINT32_MAX;
  struct State {
    uint32_t first_action = 0, action_count = 0;
    uint32_t height = kNoHeight;
    int32_t loop = -1;
    uint32_t rule = 0;
    bool reads = false, only_ends = false;
  };
  using Rules = std::vector<RuleDfa>;

  uint32_t append(const RuleDfa& dfa, uint32_t rule, std::vector<ByteDfa::Edge>& edges,
                  std::vector<uint32_t>& edge_begins);
  void find_heights(const std::vector<ByteDfa::Edge>& edges,
                    const std::vector<uint32_t>& edge_begins);
  uint32_t height_now(uint32_t state, std::span<const ByteDfa::Edge> edges) const;
  Status refuse_left_recursion(const RuleCompiler& compiler, const Grammar& grammar) const;
  void find_loops(const std::vector<ByteDfa::Edge>& edges,
                  const std::vector<uint32_t>& edge_begins);
  Status make_table(const std::vector<ByteDfa::Edge>& edges,
                    const std::vector<uint32_t>& edge_begins);
  void drop_dead_actions();
  void describe_closed_rules(const Rules& rules);

  std::vector<State> states_;
  std::vector<Action> actions_;
  std::vector<Loop> loops_;
  std::vector<uint32_t> rule_starts_, rule_begins_;
  std::vector<std::string> closed_rules_;  // [rules], "" where a rule calls another
  std::array<uint8_t, 256> class_of_{};
  uint32_t class_count_ = 0;
  std::vector<uint32_t> table_;  // [states, classes]
};

}  // namespace pewter::grammar
