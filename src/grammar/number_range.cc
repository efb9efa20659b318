#include "grammar/number_range.h"

#include <algorithm>
#include <charconv>

#include "grammar/nfa.h"

namespace pewter::grammar {
namespace {

constexpr int64_t kMostDigits = 400;
constexpr uint32_t kMostStates = 8192;

Expr digit(char first, char last) {
  return first > last ? nothing()
                      : byte_range(static_cast<uint8_t>(first), static_cast<uint8_t>(last));
}
Expr digits(size_t count) {
  const auto n = static_cast<uint32_t>(count);
  return repeat(digit('0', '9'), n, n);
}
Expr any_digits() { return repeat(digit('0', '9'), 0, kUnlimited); }
Expr any_fraction(bool integer) {
  if (integer) return literal("");
  return optional(sequence({literal("."), digit('0', '9'), any_digits()}));
}

// The magnitudes on one side of a bound: texts of decimals without a sign.
class Magnitudes {
 public:
  Magnitudes(const Decimal& bound, bool exclusive, bool integer)
      : whole_(bound.whole.empty() ? "0" : bound.whole),
        fraction_(bound.fraction),
        exclusive_(exclusive),
        integer_(integer) {}

  // At or above the bound.
  Expr above() const {
    const Expr rest = any_fraction(integer_);
    std::vector<Expr> parts = {
        sequence({digit('1', '9'), digits(whole_.size()), any_digits(), rest})};
    for (size_t i = 0; i < whole_.size(); ++i)
      parts.push_back(sequence({literal(whole_.substr(0, i)), first_digit_limit(i, true),
                                digits(whole_.size() - 1 - i), rest}));
    parts.push_back(sequence({literal(whole_), fraction_above()}));
    return choice(std::move(parts));
  }

  // At or below the bound.
  Expr below() const {
    const Expr rest = any_fraction(integer_);
    std::vector<Expr> parts;
    if (whole_.size() > 1) {
      parts.push_back(sequence({literal("0"), rest}));
      parts.push_back(
          sequence({digit('1', '9'),
                    repeat(digit('0', '9'), 0, static_cast<uint32_t>(whole_.size() - 2)), rest}));
    }
    for (size_t i = 0; i < whole_.size(); ++i)
      parts.push_back(sequence({literal(whole_.substr(0, i)), first_digit_limit(i, false),
                                digits(whole_.size() - 1 - i), rest}));
    parts.push_back(sequence({literal(whole_), fraction_below()}));
    return choice(std::move(parts));
  }

 private:
  // Digits at place i that decide for above or below; no number of several digits begins with 0.
  Expr first_digit_limit(size_t i, bool above) const {
    const char d = whole_[i];
    if (above) return d == '9' ? nothing() : digit(static_cast<char>(d + 1), '9');
    const char least = i == 0 && whole_.size() > 1 ? '1' : '0';
    return d == '0' ? nothing() : digit(least, static_cast<char>(d - 1));
  }

  // What may follow the same whole digits.
  Expr fraction_above() const {
    const bool zero = fraction_.empty();
    if (integer_) return zero && !exclusive_ ? literal("") : nothing();
    std::vector<Expr> parts;
    for (size_t i = 0; i < fraction_.size(); ++i)
      if (fraction_[i] != '9')
        parts.push_back(sequence({literal("." + fraction_.substr(0, i)),
                                  digit(static_cast<char>(fraction_[i] + 1), '9'), any_digits()}));
    if (!exclusive_) {
      parts.push_back(zero ? any_fraction(false)
                           : sequence({literal("." + fraction_), any_digits()}));
    } else {
      parts.push_back(
          sequence({literal("." + fraction_), any_digits(), digit('1', '9'), any_digits()}));
    }
    return choice(std::move(parts));
  }

  Expr fraction_below() const {
    const bool zero = fraction_.empty();
    if (integer_) return zero && exclusive_ ? nothing() : literal("");
    std::vector<Expr> parts;
    if (!zero) {
      parts.push_back(literal(""));
      for (size_t i = 0; i < fraction_.size(); ++i) {
        if (i > 0) parts.push_back(literal("." + fraction_.substr(0, i)));
        if (fraction_[i] != '0')
          parts.push_back(
              sequence({literal("." + fraction_.substr(0, i)),
                        digit('0', static_cast<char>(fraction_[i] - 1)), any_digits()}));
      }
    }
    if (!exclusive_) {
      const Expr zeros = repeat(literal("0"), zero ? 1 : 0, kUnlimited);
      const Expr same = sequence({literal("." + fraction_), zeros});
      parts.push_back(zero ? optional(same) : same);
    }
    return choice(std::move(parts));
  }

  std::string whole_, fraction_;
  bool exclusive_, integer_;
};

// Magnitudes between two bounds, either of which may be missing.
Result<Expr> magnitudes(const std::optional<NumberRange::Bound>& least,
                        const std::optional<NumberRange::Bound>& most, bool integer) {
  const NumberRange::Bound zero;
  const Expr above =
      Magnitudes((least ? *least : zero).value, least && least->exclusive, integer).above();
  if (!most) return above;
  const Expr below = Magnitudes(most->value, most->exclusive, integer).below();
  if (!least || (least->value.is_zero() && !least->exclusive)) return below;
  if (above->kind == Expression::Kind::kNothing || below->kind == Expression::Kind::kNothing)
    return nothing();
  const ByteDfaOptions options{.most_states = kMostStates};
  TRY_ASSIGN(const std::shared_ptr<const ByteDfa> a, make_byte_dfa({above}, options));
  TRY_ASSIGN(const std::shared_ptr<const ByteDfa> b, make_byte_dfa({below}, options));
  TRY_ASSIGN(std::shared_ptr<const ByteDfa> both, intersection(*a, *b, kMostStates));
  return dfa(std::move(both), {literal("")});
}

NumberRange::Bound mirrored(NumberRange::Bound bound) {
  if (!bound.value.is_zero()) bound.value.negative = !bound.value.negative;
  return bound;
}

void trim(Decimal& decimal) {
  decimal.whole.erase(0, std::min(decimal.whole.find_first_not_of('0'), decimal.whole.size()));
  const size_t last = decimal.fraction.find_last_not_of('0');
  decimal.fraction.erase(last == std::string::npos ? 0 : last + 1);
  if (decimal.is_zero()) decimal.negative = false;
}

}  // namespace

void NumberRange::at_least(const Bound& bound) {
  const int order = least ? compare(bound.value, least->value) : 1;
  if (order > 0 || (order == 0 && bound.exclusive)) least = bound;
}

void NumberRange::at_most(const Bound& bound) {
  const int order = most ? compare(bound.value, most->value) : -1;
  if (order < 0 || (order == 0 && bound.exclusive)) most = bound;
}

Result<Decimal> to_decimal(const Json& number) {
  std::string text = number.dump();
  Decimal decimal;
  if (text.starts_with('-')) {
    decimal.negative = true;
    text.erase(0, 1);
  }
  int64_t exponent = 0;
  if (const size_t e = text.find_first_of("eE"); e != std::string::npos) {
    const char* const first = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
    std::from_chars(first, text.data() + text.size(), exponent);
    text.resize(e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  decimal.whole = text.substr(0, point);
  if (point < text.size()) decimal.fraction = text.substr(point + 1);
  const auto size = static_cast<int64_t>(text.size());
  if (std::abs(exponent) + size > kMostDigits)
    return Error{ErrorCode::kUnsupported,
                 str_cat("a number of more than ", kMostDigits, " digits")};
  for (; exponent > 0; --exponent) {
    decimal.whole += decimal.fraction.empty() ? '0' : decimal.fraction.front();
    if (!decimal.fraction.empty()) decimal.fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    decimal.fraction.insert(decimal.fraction.begin(),
                            decimal.whole.empty() ? '0' : decimal.whole.back());
    if (!decimal.whole.empty()) decimal.whole.pop_back();
  }
  trim(decimal);
  return decimal;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int order = 0;
  if (a.whole.size() != b.whole.size())
    order = a.whole.size() < b.whole.size() ? -1 : 1;
  else if (a.whole != b.whole)
    order = a.whole < b.whole ? -1 : 1;
  else if (a.fraction != b.fraction)
    order = a.fraction < b.fraction ? -1 : 1;
  return a.negative ? -order : order;
}

bool contains(const NumberRange& range, const Decimal& value) {
  if (range.integer && !value.fraction.empty()) return false;
  // order: of the value beside the bound, on the side where it may be.
  const auto is_within = [](const std::optional<NumberRange::Bound>& bound, int order) {
    return !bound || order > 0 || (order == 0 && !bound->exclusive);
  };
  return is_within(range.least, range.least ? compare(value, range.least->value) : 0) &&
         is_within(range.most, range.most ? compare(range.most->value, value) : 0);
}

Result<Expr> numbers_in(const NumberRange& range) {
  if (range.least && range.most && compare(range.least->value, range.most->value) > 0)
    return nothing();
  const NumberRange::Bound zero, above_zero{.exclusive = true};
  std::vector<Expr> parts;
  // From zero on, unless everything is below it.
  if (!range.most || !range.most->value.negative) {
    const bool from_zero = !range.least || range.least->value.negative;
    TRY_ASSIGN(Expr part, magnitudes(from_zero ? zero : *range.least, range.most, range.integer));
    parts.push_back(std::move(part));
  }
  if (!range.least || range.least->value.negative) {
    const bool to_zero = !range.most || !range.most->value.negative;
    const NumberRange::Bound least = to_zero ? above_zero : mirrored(*range.most);
    std::optional<NumberRange::Bound> most;
    if (range.least) most = mirrored(*range.least);
    TRY_ASSIGN(Expr part, magnitudes(least, most, range.integer));
    parts.push_back(sequence({literal("-"), std::move(part)}));
  }
  return choice(std::move(parts));
}

}  // namespace pewter::grammar
