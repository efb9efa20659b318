// From one rule's expression to a deterministic automaton over bytes. What takes no byte and is not
// free of side effects (calling a rule, counting, marks, ending) becomes an action of a state.
//
//   expression → states with free moves (Thompson's construction) → sets of them (subsets)
#pragma once

#include <map>

#include "base/result.h"
#include "grammar/expression.h"

namespace pewter::grammar {

struct Action {
  enum class Kind : uint8_t {
    kEnd,       // the rule ends here
    kCall,      // rule `index`, then on at target
    kEnter,     // loop `index` begins: its body at target, what follows it at other
    kNext,      // its body has been read once more
    kMark,      // if mark `index` is not set: sets it, then on at target
    kMarked,    // if all of `marks` are set: on at target
    kUnmarked,  // if not all of `marks` are set: on at target
  };
  Kind kind = Kind::kEnd;
  uint32_t index = 0;
  uint32_t target = 0, other = 0;
  uint64_t marks = 0;
};

// A repeat whose turns are counted.
struct Loop {
  uint32_t least = 0, most = 0;
};

// One rule, deterministic; states are numbered from 0, the start.
struct RuleDfa {
  struct State {
    std::vector<ByteDfa::Edge> edges;  // ascending
    std::vector<Action> actions;
    int32_t end = -1;  // of make_byte_dfa: the lowest end reached here
  };
  std::vector<State> states;
};

// Whatever is made deterministic on this thread while it lives counts towards kMostWork together,
// so that a grammar of many parts is no way around the limit.
class WorkBudget {
 public:
  WorkBudget();
  ~WorkBudget();
  WorkBudget(const WorkBudget&) = delete;
  WorkBudget& operator=(const WorkBudget&) = delete;

 private:
  int64_t work_ = 0;
  int64_t* outer_;
};

// Compiles the rules of a grammar one by one. Anonymous rules may be added to it on the way.
class RuleCompiler {
 public:
  explicit RuleCompiler(Grammar& grammar);
  // Error: kInvalidArgument naming the rule and the limit.
  Result<RuleDfa> compile(RuleId id);
  const std::vector<Loop>& loops() const { return loops_; }
  bool nullable(RuleId id) const { return nullable_[id]; }

 private:
  friend class NfaBuilder;
  void find_nullable(RuleId first);
  bool nullable(const Expression& expr) const;
  bool nullable_graph(const Expression& expr) const;

  Grammar& grammar_;
  std::vector<bool> nullable_;
  std::vector<Loop> loops_;
};

// The automaton of alternatives without rules and marks; end i is where alternative i is complete.
// anywhere: a text may come before it, and nothing is read past the first end.
// Errors: kInvalidArgument when it is too large.
struct ByteDfaOptions {
  bool anywhere = false;
  uint32_t most_states = 4096;
};
Result<std::shared_ptr<const ByteDfa>> make_byte_dfa(const std::vector<Expr>& alternatives,
                                                     const ByteDfaOptions& options);
// Texts that both accept (ends are not told apart). Error: kInvalidArgument when it is too large.
Result<std::shared_ptr<const ByteDfa>> intersection(const ByteDfa& a, const ByteDfa& b,
                                                    uint32_t most_states);
// Texts of `a` that `b` does not accept, likewise.
Result<std::shared_ptr<const ByteDfa>> difference(const ByteDfa& a, const ByteDfa& b,
                                                  uint32_t most_states);

}  // namespace pewter::grammar
