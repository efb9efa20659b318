#include "grammar/nfa.h"

#include <algorithm>
#include <tuple>

#include "grammar/limits.h"

namespace pewter::grammar {

using Kind = Expression::Kind;

namespace {

constexpr uint64_t kExpandedSize = 64;          // a repeat up to here is written out
constexpr uint64_t kExpandedInsideSize = 4096;  // where it cannot be counted

struct NfaState {
  std::vector<ByteDfa::Edge> edges;  // in any order
  std::vector<uint32_t> free;        // moves that take nothing
  std::vector<Action> actions;
  int32_t end = -1;
};

Error too_large(std::string_view what) {
  return {ErrorCode::kInvalidArgument, str_cat("too large: ", what)};
}

}  // namespace

namespace {
thread_local int64_t* current_work = nullptr;  // of the innermost WorkBudget
}  // namespace

WorkBudget::WorkBudget() : outer_(current_work) {
  if (outer_ == nullptr) current_work = &work_;
}

WorkBudget::~WorkBudget() { current_work = outer_; }

// Thompson's construction for one expression.
class NfaBuilder {
 public:
  // compiler: null where neither rules nor counts nor marks are allowed.
  explicit NfaBuilder(RuleCompiler* compiler) : compiler_(compiler) {}

  uint32_t add() {
    states_.emplace_back();
    return static_cast<uint32_t>(states_.size() - 1);
  }
  NfaState& at(uint32_t state) { return states_[state]; }
  const std::vector<NfaState>& states() const { return states_; }
  void connect(uint32_t from, uint32_t to) { states_[from].free.push_back(to); }

  // Appends expr behind state `from`; the state behind it.
  uint32_t build(const Expr& expr, uint32_t from);
  Status status() const { return status_; }
  void find_marks(const Expression& expr);

 private:
  struct Depth {
    explicit Depth(int& d) : depth(d) { ++depth; }
    ~Depth() { --depth; }
    int& depth;
  };
  uint32_t fail(std::string_view why) {
    if (status_) status_ = too_large(why);
    return 0;
  }
  uint32_t act(uint32_t from, Action action) {
    action.target = add();
    at(from).actions.push_back(action);
    return action.target;
  }
  uint32_t build_dfa(const Expression& expr, uint32_t from);
  uint32_t build_choice(const Expression& expr, uint32_t from);
  uint32_t build_graph(const Expression& expr, uint32_t from);
  uint32_t build_repeat(const Expression& expr, uint32_t from);
  uint32_t build_star(const Expr& part, uint32_t from);
  uint32_t expand(const Expression& expr, uint32_t from);
  uint32_t count(const Expression& expr, uint32_t from);
  // States an expression takes, roughly; saturates.
  static uint64_t size_of(const Expression& expr);

  RuleCompiler* compiler_;
  std::vector<NfaState> states_;
  Status status_;
  bool counting_ = false, has_marks_ = false;
  int depth_ = 0;
};

void NfaBuilder::find_marks(const Expression& expr) {
  if (expr.kind == Kind::kMark || expr.kind == Kind::kMarked || expr.kind == Kind::kUnmarked)
    has_marks_ = true;
  for (const Expr& part : expr.parts) find_marks(*part);
}

uint64_t NfaBuilder::size_of(const Expression& expr) {
  constexpr uint64_t kMost = uint64_t{1} << 40;
  uint64_t size = 1 + expr.text.size();
  if (expr.dfa) size += expr.dfa->states.size();
  for (const Expr& part : expr.parts) size = std::min(kMost, size + size_of(*part));
  if (expr.kind == Kind::kRepeat) {
    const uint64_t times = expr.most == kUnlimited ? uint64_t{expr.least} + 1 : expr.most;
    size = std::min(kMost, size * times);
  }
  return size;
}

uint32_t NfaBuilder::build(const Expr& expr, uint32_t from) {
  const Depth depth(depth_);
  if (depth_ > kDeepestExpression) return fail("expressions inside expressions");
  if (states_.size() > kMostNfaStates) return fail("the expression");
  if (!status_) return 0;
  switch (expr->kind) {
    case Kind::kNothing:
      return add();
    case Kind::kLiteral:
      for (const char c : expr->text) {
        const uint32_t next = add();
        const auto byte = static_cast<uint8_t>(c);
        at(from).edges.push_back({byte, byte, next});
        from = next;
      }
      return from;
    case Kind::kBytes: {
      const uint32_t next = add();
      for (size_t b = 0; b < 256; ++b) {
        if (!expr->bytes.test(b)) continue;
        const size_t first = b;
        while (b + 1 < 256 && expr->bytes.test(b + 1)) ++b;
        at(from).edges.push_back({static_cast<uint8_t>(first), static_cast<uint8_t>(b), next});
      }
      return next;
    }
    case Kind::kSequence:
      for (const Expr& part : expr->parts) from = build(part, from);
      return from;
    case Kind::kChoice:
      return build_choice(*expr, from);
    case Kind::kRepeat:
      return build_repeat(*expr, from);
    case Kind::kDfa:
      return build_dfa(*expr, from);
    case Kind::kGraph:
      return build_graph(*expr, from);
    case Kind::kRule:
      CHECK(compiler_ != nullptr, "a rule where only bytes may be");
      return act(from, {.kind = Action::Kind::kCall, .index = expr->rule});
    case Kind::kMark:
      return act(from, {.kind = Action::Kind::kMark, .index = expr->rule});
    case Kind::kMarked:
      return act(from, {.kind = Action::Kind::kMarked, .marks = expr->marks});
    case Kind::kUnmarked:
      return act(from, {.kind = Action::Kind::kUnmarked, .marks = expr->marks});
  }
  return from;
}

uint32_t NfaBuilder::build_choice(const Expression& expr, uint32_t from) {
  const uint32_t end = add();
  for (const Expr& part : expr.parts) {
    const uint32_t begin = add();
    connect(from, begin);
    connect(build(part, begin), end);
    if (!status_) return 0;
  }
  return end;
}

uint32_t NfaBuilder::build_graph(const Expression& expr, uint32_t from) {
  std::vector<uint32_t> nodes = {add(), add()};
  connect(from, nodes[GraphBuilder::kBegin]);
  for (size_t i = 0; i < expr.arcs.size(); ++i) {
    const Arc arc = expr.arcs[i];
    while (nodes.size() <= std::max(arc.from, arc.to)) nodes.push_back(add());
    const uint32_t begin = add();
    connect(nodes[arc.from], begin);
    const uint32_t end = build(expr.parts[i], begin);
    if (!status_) return 0;
    connect(end, nodes[arc.to]);
  }
  return nodes[GraphBuilder::kEnd];
}

uint32_t NfaBuilder::build_dfa(const Expression& expr, uint32_t from) {
  const uint32_t end = add();
  std::vector<uint32_t> then;
  for (const Expr& part : expr.parts) {
    then.push_back(add());
    connect(build(part, then.back()), end);
    if (!status_) return 0;
  }
  const auto base = static_cast<uint32_t>(states_.size());
  for (const ByteDfa::State& state : expr.dfa->states) {
    NfaState& copy = at(add());
    copy.edges = state.edges;
    for (ByteDfa::Edge& edge : copy.edges) edge.target += base;
    if (state.end >= 0) copy.free.push_back(then[static_cast<size_t>(state.end)]);
  }
  connect(from, base);
  return end;
}

uint32_t NfaBuilder::build_star(const Expr& part, uint32_t from) {
  const uint32_t begin = add();
  connect(from, begin);
  const uint32_t end = build(part, begin);
  if (!status_) return 0;
  connect(end, begin);
  const uint32_t out = add();
  connect(begin, out);
  return out;
}

uint32_t NfaBuilder::expand(const Expression& expr, uint32_t from) {
  const Expr& part = expr.parts[0];
  for (uint32_t i = 0; i < expr.least && status_; ++i) from = build(part, from);
  if (expr.most == kUnlimited) return build_star(part, from);
  const uint32_t end = add();
  for (uint32_t i = expr.least; i < expr.most && status_; ++i) {
    connect(from, end);
    const uint32_t begin = add();  // so that a loop inside does not lead back before `from`
    connect(from, begin);
    from = build(part, begin);
  }
  if (!status_) return 0;
  connect(from, end);
  return end;
}

uint32_t NfaBuilder::build_repeat(const Expression& expr, uint32_t from) {
  const bool counts = expr.least > 1 || (expr.most != kUnlimited && expr.most > 1);
  if (!counts) return expand(expr, from);
  const uint64_t size = size_of(expr);
  if (compiler_ == nullptr) {
    if (size > kMostNfaStates) return fail("a repeat");
    return expand(expr, from);
  }
  if (size <= kExpandedSize || compiler_->nullable(*expr.parts[0])) {
    if (size > kMostNfaStates) return fail("a repeat of what may be empty");
    return expand(expr, from);
  }
  if (!counting_ && !has_marks_) return count(expr, from);
  if (size <= kExpandedInsideSize) return expand(expr, from);
  // A count inside a count: a rule of its own.
  Grammar& grammar = compiler_->grammar_;
  if (grammar.rules.size() >= kMostRules) return fail("the number of rules");
  const RuleId id = grammar.add("a repeated part", std::make_shared<const Expression>(expr));
  compiler_->find_nullable(id);
  return act(from, {.kind = Action::Kind::kCall, .index = id});
}

uint32_t NfaBuilder::count(const Expression& expr, uint32_t from) {
  const auto loop = static_cast<uint32_t>(compiler_->loops_.size());
  compiler_->loops_.push_back({expr.least, expr.most});
  const uint32_t body = add(), out = add();
  at(from).actions.push_back(
      {.kind = Action::Kind::kEnter, .index = loop, .target = body, .other = out});
  counting_ = true;
  const uint32_t end = build(expr.parts[0], body);
  counting_ = false;
  if (!status_) return 0;
  at(end).actions.push_back(
      {.kind = Action::Kind::kNext, .index = loop, .target = body, .other = out});
  return out;
}

namespace {

// The subset construction.
class Determiniser {
 public:
  struct Limits {
    uint32_t states;
    int64_t* work;  // counted up to kMostWork
    bool stop_at_end = false;
  };
  Determiniser(const std::vector<NfaState>& nfa, const Limits& limits)
      : nfa_(nfa), limits_(limits), seen_(nfa.size(), 0) {}

  Result<RuleDfa> run(uint32_t start) {
    const uint32_t first = state_of({start});
    CHECK(first == 0, "the first set is the start");
    for (uint32_t state = 0; state < sets_.size(); ++state) {
      expand(state);
      if (sets_.size() > limits_.states) return too_large("its states");
      if (*limits_.work > kMostWork) return too_large("the work to make it deterministic");
    }
    return std::move(dfa_);
  }

 private:
  // The state of a set closed under free moves.
  uint32_t state_of(std::vector<uint32_t> set) {
    ++round_;
    for (const uint32_t s : set) seen_[s] = round_;
    for (size_t i = 0; i < set.size(); ++i)
      for (const uint32_t next : nfa_[set[i]].free)
        if (seen_[next] != round_) {
          seen_[next] = round_;
          set.push_back(next);
        }
    *limits_.work += static_cast<int64_t>(set.size());
    // Only what has edges, actions or an end tells sets apart.
    std::erase_if(set, [&](uint32_t s) {
      return nfa_[s].edges.empty() && nfa_[s].actions.empty() && nfa_[s].end < 0;
    });
    std::ranges::sort(set);
    const auto [at, is_new] = states_.try_emplace(set, static_cast<uint32_t>(sets_.size()));
    if (is_new) {
      sets_.push_back(&at->first);
      dfa_.states.emplace_back();
    }
    return at->second;
  }

  void expand(uint32_t state) {
    const std::vector<uint32_t>& set = *sets_[state];
    int32_t end = -1;
    for (const uint32_t s : set)
      if (nfa_[s].end >= 0 && (end < 0 || nfa_[s].end < end)) end = nfa_[s].end;
    dfa_.states[state].end = end;
    if (end >= 0 && limits_.stop_at_end) return;
    add_edges(state, set);
    add_actions(state, set);
  }

  void add_edges(uint32_t state, const std::vector<uint32_t>& set) {
    std::bitset<257> borders;
    for (const uint32_t s : set)
      for (const ByteDfa::Edge& edge : nfa_[s].edges) {
        borders.set(edge.first);
        borders.set(size_t{edge.last} + 1);
      }
    for (size_t first = 0; first < 256;) {
      size_t last = first + 1;
      while (last < 256 && !borders.test(last)) ++last;
      std::vector<uint32_t> targets;
      for (const uint32_t s : set)
        for (const ByteDfa::Edge& edge : nfa_[s].edges)
          if (edge.first <= first && first <= edge.last) targets.push_back(edge.target);
      if (!targets.empty()) {
        std::ranges::sort(targets);
        targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
        const uint32_t target = state_of(std::move(targets));
        auto& edges = dfa_.states[state].edges;
        const auto low = static_cast<uint8_t>(first), high = static_cast<uint8_t>(last - 1);
        if (!edges.empty() && edges.back().target == target && edges.back().last + 1 == low)
          edges.back().last = high;
        else
          edges.push_back({low, high, target});
      }
      *limits_.work += static_cast<int64_t>(set.size());
      first = last;
    }
  }

  // Actions that do the same go on in one state.
  void add_actions(uint32_t state, const std::vector<uint32_t>& set) {
    using Key = std::tuple<Action::Kind, uint32_t, uint64_t>;
    struct Targets {
      std::vector<uint32_t> target, other;
    };
    std::map<Key, Targets> actions;
    for (const uint32_t s : set)
      for (const Action& action : nfa_[s].actions) {
        Targets& targets = actions[{action.kind, action.index, action.marks}];
        targets.target.push_back(action.target);
        targets.other.push_back(action.other);
      }
    for (auto& [key, targets] : actions) {
      Action action{.kind = std::get<0>(key), .index = std::get<1>(key), .marks = std::get<2>(key)};
      if (action.kind != Action::Kind::kEnd) action.target = state_of(std::move(targets.target));
      if (action.kind == Action::Kind::kEnter || action.kind == Action::Kind::kNext)
        action.other = state_of(std::move(targets.other));
      dfa_.states[state].actions.push_back(action);
    }
  }

  const std::vector<NfaState>& nfa_;
  Limits limits_;
  std::vector<uint32_t> seen_;
  uint32_t round_ = 0;
  std::map<std::vector<uint32_t>, uint32_t> states_;
  std::vector<const std::vector<uint32_t>*> sets_;
  RuleDfa dfa_;
};

}  // namespace

RuleCompiler::RuleCompiler(Grammar& grammar) : grammar_(grammar) { find_nullable(0); }

// Which rules may be empty: grown until nothing changes, for the rules from `first` on.
void RuleCompiler::find_nullable(RuleId first) {
  nullable_.resize(grammar_.rules.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    for (RuleId id = first; id < grammar_.rules.size(); ++id) {
      if (nullable_[id] || !nullable(*grammar_.rules[id].body)) continue;
      nullable_[id] = changed = true;
    }
  }
}

bool RuleCompiler::nullable(const Expression& expr) const {
  const auto is_nullable = [this](const Expr& part) { return nullable(*part); };
  switch (expr.kind) {
    case Kind::kNothing:
    case Kind::kBytes:
      return false;
    case Kind::kLiteral:
      return expr.text.empty();
    case Kind::kSequence:
      return std::ranges::all_of(expr.parts, is_nullable);
    case Kind::kChoice:
      return std::ranges::any_of(expr.parts, is_nullable);
    case Kind::kRepeat:
      return expr.least == 0 || nullable(*expr.parts[0]);
    case Kind::kRule:
      return nullable_[expr.rule];
    case Kind::kDfa: {
      const int32_t end = expr.dfa->states.front().end;
      return end >= 0 && nullable(*expr.parts[static_cast<size_t>(end)]);
    }
    case Kind::kGraph:
      return nullable_graph(expr);
    case Kind::kMark:
    case Kind::kMarked:
    case Kind::kUnmarked:
      return true;
  }
  return false;
}

bool RuleCompiler::nullable_graph(const Expression& expr) const {
  std::vector<bool> reached(2, false);
  reached[GraphBuilder::kBegin] = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < expr.arcs.size(); ++i) {
      const Arc arc = expr.arcs[i];
      reached.resize(std::max<size_t>(reached.size(), std::max(arc.from, arc.to) + size_t{1}));
      if (!reached[arc.from] || reached[arc.to] || !nullable(*expr.parts[i])) continue;
      reached[arc.to] = changed = true;
    }
  }
  return reached[GraphBuilder::kEnd];
}

Result<RuleDfa> RuleCompiler::compile(RuleId id) {
  const WorkBudget budget;
  const Expr body = grammar_.rules[id].body;
  NfaBuilder builder(this);
  builder.find_marks(*body);
  const uint32_t start = builder.add();
  const uint32_t end = builder.build(body, start);
  const std::string name = grammar_.rules[id].name;
  if (!builder.status()) return builder.status().error().within(name);
  builder.at(end).actions.push_back({.kind = Action::Kind::kEnd});
  Result<RuleDfa> dfa =
      Determiniser(builder.states(), {.states = kMostStates, .work = current_work}).run(start);
  if (!dfa) return dfa.error().within(name);
  return dfa;
}

Result<std::shared_ptr<const ByteDfa>> make_byte_dfa(const std::vector<Expr>& alternatives,
                                                     const ByteDfaOptions& options) {
  NfaBuilder builder(nullptr);
  const uint32_t start = builder.add();
  if (options.anywhere) {
    const uint32_t end = builder.build(characters({{0, 0x10FFFF}}), start);
    builder.connect(end, start);
  }
  for (size_t i = 0; i < alternatives.size(); ++i) {
    const uint32_t begin = builder.add();
    builder.connect(start, begin);
    const uint32_t end = builder.build(alternatives[i], begin);
    TRY(builder.status());
    builder.at(end).end = static_cast<int32_t>(i);
  }
  const WorkBudget budget;
  TRY_ASSIGN(RuleDfa rule, Determiniser(builder.states(), {.states = options.most_states,
                                                           .work = current_work,
                                                           .stop_at_end = options.anywhere})
                               .run(start));
  auto dfa = std::make_shared<ByteDfa>();
  for (RuleDfa::State& state : rule.states)
    dfa->states.push_back({.edges = std::move(state.edges), .end = state.end});
  return std::shared_ptr<const ByteDfa>(std::move(dfa));
}

namespace {

constexpr uint32_t kGone = UINT32_MAX;  // a text no longer has a state

uint32_t step(const ByteDfa& dfa, uint32_t state, uint8_t byte) {
  if (state == kGone) return kGone;
  for (const ByteDfa::Edge& edge : dfa.states[state].edges)
    if (edge.first <= byte && byte <= edge.last) return edge.target;
  return kGone;
}

// Runs both at once. accepts(a, b): whether a pair of ends counts.
template <typename Accepts>
Result<std::shared_ptr<const ByteDfa>> product(const ByteDfa& a, const ByteDfa& b,
                                               uint32_t most_states, bool needs_b,
                                               const Accepts& accepts) {
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> numbers;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  const auto number_of = [&](uint32_t x, uint32_t y) {
    const auto [at, is_new] = numbers.try_emplace({x, y}, static_cast<uint32_t>(pairs.size()));
    if (is_new) pairs.emplace_back(x, y);
    return at->second;
  };
  number_of(0, 0);
  const WorkBudget budget;
  auto dfa = std::make_shared<ByteDfa>();
  for (size_t i = 0; i < pairs.size(); ++i) {
    constexpr int64_t kWorkOfPair = 16;
    *current_work += kWorkOfPair;
    if (pairs.size() > most_states || *current_work > kMostWork)
      return too_large("two patterns that hold at once");
    const auto [x, y] = pairs[i];
    ByteDfa::State& state = dfa->states.emplace_back();
    const bool in_b = y != kGone && b.states[y].end >= 0;
    if (accepts(a.states[x].end >= 0, in_b)) state.end = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const auto value = static_cast<uint8_t>(byte);
      const uint32_t to_a = step(a, x, value), to_b = step(b, y, value);
      if (to_a == kGone || (needs_b && to_b == kGone)) continue;
      const uint32_t target = number_of(to_a, to_b);
      if (!state.edges.empty() && state.edges.back().target == target &&
          state.edges.back().last + 1 == byte)
        state.edges.back().last = value;
      else
        state.edges.push_back({value, value, target});
    }
  }
  return std::shared_ptr<const ByteDfa>(std::move(dfa));
}

}  // namespace

Result<std::shared_ptr<const ByteDfa>> intersection(const ByteDfa& a, const ByteDfa& b,
                                                    uint32_t most_states) {
  return product(a, b, most_states, /*needs_b=*/true, [](bool x, bool y) { return x && y; });
}

Result<std::shared_ptr<const ByteDfa>> difference(const ByteDfa& a, const ByteDfa& b,
                                                  uint32_t most_states) {
  return product(a, b, most_states, /*needs_b=*/false, [](bool x, bool y) { return x && !y; });
}

}  // namespace pewter::grammar
