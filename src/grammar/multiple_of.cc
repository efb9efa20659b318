#include "grammar/multiple_of.h"

#include <charconv>
#include <map>

#include "grammar/nfa.h"

namespace pewter::grammar {
namespace {

constexpr uint32_t kMostStates = 1 << 14;
constexpr uint64_t kLargestStep = 5000;
constexpr size_t kMostPlaces = 6;

// step = units / 10^places
struct Step {
  uint64_t units = 0;
  size_t places = 0;
};

Result<Step> step_of(const Decimal& step) {
  const std::string digits = step.whole + step.fraction;
  Step out{.places = step.fraction.size()};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), out.units);
  if (error != std::errc() || out.units > kLargestStep || out.places > kMostPlaces)
    return Error{ErrorCode::kUnsupported,
                 str_cat("multipleOf is supported up to ", kLargestStep, " units of the last of ",
                         kMostPlaces, " decimal places")};
  return out;
}

uint64_t power_of_ten(size_t exponent) {
  uint64_t power = 1;
  for (; exponent > 0; --exponent) power *= 10;
  return power;
}

// States are what has been read of a number (nothing, a sign, zero, digits, digits behind a point)
// with the remainder of its digits by `units`. The last place of the step is the last there may be.
class Divider {
 public:
  explicit Divider(const Step& step) : step_(step), dfa_(std::make_shared<ByteDfa>()) {}

  std::shared_ptr<const ByteDfa> build() {
    const uint32_t start = state({0, 0}), sign = state({1, 0});
    edge(start, '-', sign);
    for (const uint32_t from : {start, sign}) {
      edge(from, '0', state({2, 0}));
      for (char c = '1'; c <= '9'; ++c) edge(from, c, state({3, value(c) % step_.units}));
    }
    // Grows while it is walked.
    for (size_t i = 0; i < todo_.size(); ++i) {
      const auto [phase, rest] = todo_[i];
      const uint32_t from = known_.at(todo_[i]);
      if (phase < 2) continue;
      const size_t places = phase <= 3 ? 0 : phase - 4;  // digits behind the point
      if (phase <= 3 && step_.places > 0) edge(from, '.', state({4, rest}));
      if (phase == 3)
        for (char c = '0'; c <= '9'; ++c) edge(from, c, state({3, next(rest, c)}));
      if (phase >= 4 && places < step_.places)
        for (char c = '0'; c <= '9'; ++c) edge(from, c, state({phase + 1, next(rest, c)}));
      const bool is_whole = rest * power_of_ten(step_.places - places) % step_.units == 0;
      if (phase != 4 && is_whole) dfa_->states[from].end = 0;
    }
    return std::move(dfa_);
  }

 private:
  using Place = std::pair<size_t, uint64_t>;
  static uint64_t value(char c) { return static_cast<uint64_t>(c - '0'); }
  uint64_t next(uint64_t rest, char c) const { return (rest * 10 + value(c)) % step_.units; }
  uint32_t state(const Place& place) {
    const auto [at, is_new] = known_.try_emplace(place, static_cast<uint32_t>(dfa_->states.size()));
    if (is_new) {
      dfa_->states.emplace_back();
      todo_.push_back(place);
    }
    return at->second;
  }
  void edge(uint32_t from, char c, uint32_t to) {
    const auto byte = static_cast<uint8_t>(c);
    dfa_->states[from].edges.push_back({byte, byte, to});
  }

  Step step_;
  std::shared_ptr<ByteDfa> dfa_;
  std::map<Place, uint32_t> known_;
  std::vector<Place> todo_;
};

// Every way to write a decimal without an exponent.
Expr written(const Decimal& value) {
  const Expr zeros = repeat(literal("0"), 0, kUnlimited);
  const Expr sign = value.is_zero() ? optional(literal("-")) : literal(value.negative ? "-" : "");
  const Expr fraction = value.fraction.empty() ? optional(sequence({literal(".0"), zeros}))
                                               : sequence({literal("." + value.fraction), zeros});
  return sequence({sign, literal(value.whole.empty() ? "0" : value.whole), fraction});
}

}  // namespace

Result<Expr> multiples_in(const Expr& numbers, const std::vector<Decimal>& steps,
                          const std::vector<Decimal>& excluded, bool integer) {
  TRY_ASSIGN(std::shared_ptr<const ByteDfa> kept,
             make_byte_dfa({numbers}, {.most_states = kMostStates}));
  for (const Decimal& decimal : steps) {
    TRY_ASSIGN(const Step step, step_of(decimal));
    TRY_ASSIGN(kept, intersection(*kept, *Divider(step).build(), kMostStates));
  }
  if (!excluded.empty()) {
    std::vector<Expr> texts;
    for (const Decimal& value : excluded)
      if (!integer || value.fraction.empty()) texts.push_back(written(value));
    TRY_ASSIGN(const std::shared_ptr<const ByteDfa> taken,
               make_byte_dfa({choice(std::move(texts))}, {.most_states = kMostStates}));
    TRY_ASSIGN(kept, difference(*kept, *taken, kMostStates));
  }
  return dfa(std::move(kept), {literal("")});
}

Result<Expr> fractions_in(const Expr& numbers) {
  const ByteDfaOptions limits{.most_states = kMostStates};
  const Expr zeros = repeat(literal("0"), 0, kUnlimited);
  const Expr integers =
      sequence({optional(literal("-")), repeat(byte_range('0', '9'), 1, kUnlimited),
                optional(sequence({literal("."), zeros}))});
  TRY_ASSIGN(const std::shared_ptr<const ByteDfa> all, make_byte_dfa({numbers}, limits));
  TRY_ASSIGN(const std::shared_ptr<const ByteDfa> whole, make_byte_dfa({integers}, limits));
  TRY_ASSIGN(std::shared_ptr<const ByteDfa> kept, difference(*all, *whole, kMostStates));
  return dfa(std::move(kept), {literal("")});
}

bool is_multiple(const Decimal& value, const Decimal& decimal) {
  const Result<Step> step = step_of(decimal);
  if (!step || value.fraction.size() > step->places) return false;
  uint64_t rest = 0;
  for (const char c : value.whole + value.fraction)
    rest = (rest * 10 + static_cast<uint64_t>(c - '0')) % step->units;
  return rest * power_of_ten(step->places - value.fraction.size()) % step->units == 0;
}

}  // namespace pewter::grammar
