#include "grammar/expression.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace pewter::grammar {
namespace {

constexpr char32_t kLastCodePoint = 0x10FFFF;
using Kind = Expression::Kind;

Expr make(Expression expression) {
  return std::make_shared<const Expression>(std::move(expression));
}

bool is_empty_text(const Expr& expr) { return expr->kind == Kind::kLiteral && expr->text.empty(); }

// The bytes of a code point, and how many.
struct Encoded {
  std::array<uint8_t, 4> bytes{};
  int size = 0;
};
Encoded encode(char32_t c) {
  const auto byte = [](char32_t bits) { return static_cast<uint8_t>(bits); };
  if (c < 0x80) return {{byte(c)}, 1};
  const auto low = [&](int shift) { return byte(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x800) return {{byte(0xC0 | c >> 6), low(0)}, 2};
  if (c < 0x10000) return {{byte(0xE0 | c >> 12), low(6), low(0)}, 3};
  return {{byte(0xF0 | c >> 18), low(12), low(6), low(0)}, 4};
}

// Texts of equal length between two encodings: the first byte fixed, then in between, then fixed.
void add_encoded(const Encoded& first, const Encoded& last, int at, std::vector<Expr> prefix,
                 std::vector<Expr>& out) {
  const auto i = static_cast<size_t>(at);
  if (at + 1 == first.size) {
    prefix.push_back(byte_range(first.bytes[i], last.bytes[i]));
    out.push_back(sequence(std::move(prefix)));
    return;
  }
  const auto rest_is = [&](const Encoded& encoded, uint8_t byte) {
    return std::all_of(encoded.bytes.begin() + at + 1, encoded.bytes.begin() + encoded.size,
                       [byte](uint8_t b) { return b == byte; });
  };
  uint8_t from = first.bytes[i], to = last.bytes[i];
  const auto tail = static_cast<size_t>(first.size - at - 1);
  Encoded lowest = first, highest = first;
  std::fill_n(lowest.bytes.begin() + at + 1, tail, uint8_t{0x80});
  std::fill_n(highest.bytes.begin() + at + 1, tail, uint8_t{0xBF});
  const auto with = [&](uint8_t a, uint8_t b, const Encoded& low, const Encoded& high) {
    std::vector<Expr> longer = prefix;
    longer.push_back(byte_range(a, b));
    add_encoded(low, high, at + 1, std::move(longer), out);
  };
  if (from == to) return with(from, to, first, last);
  const bool starts_inside = !rest_is(first, 0x80), ends_inside = !rest_is(last, 0xBF);
  if (starts_inside) {
    with(from, from, first, highest);
    ++from;
  }
  if (ends_inside) --to;
  if (from <= to) with(from, to, lowest, highest);
  if (ends_inside) with(static_cast<uint8_t>(to + 1), static_cast<uint8_t>(to + 1), lowest, last);
}

}  // namespace

Expr nothing() { return make({.kind = Kind::kNothing}); }
Expr literal(std::string_view text) {
  return make({.kind = Kind::kLiteral, .text = std::string(text)});
}
Expr byte_of(const ByteSet& set) {
  return set.none() ? nothing() : make({.kind = Kind::kBytes, .bytes = set});
}
Expr byte_range(uint8_t first, uint8_t last) {
  ByteSet set;
  for (int b = first; b <= last; ++b) set.set(static_cast<size_t>(b));
  return byte_of(set);
}

Expr sequence(std::vector<Expr> parts) {
  for (const Expr& part : parts)
    if (part->kind == Kind::kNothing) return part;
  std::erase_if(parts, is_empty_text);
  if (parts.empty()) return literal("");
  if (parts.size() == 1) return parts.front();
  return make({.kind = Kind::kSequence, .parts = std::move(parts)});
}

Expr choice(std::vector<Expr> parts) {
  std::erase_if(parts, [](const Expr& part) { return part->kind == Kind::kNothing; });
  if (parts.empty()) return nothing();
  if (parts.size() == 1) return parts.front();
  return make({.kind = Kind::kChoice, .parts = std::move(parts)});
}

Expr repeat(Expr part, uint32_t least, uint32_t most) {
  CHECK(least <= most, "repeat ", least, " to ", most, " times");
  if (most == 0 || is_empty_text(part)) return literal("");
  if (part->kind == Kind::kNothing) return least == 0 ? literal("") : part;
  if (least == 1 && most == 1) return part;
  return make({.kind = Kind::kRepeat, .parts = {std::move(part)}, .least = least, .most = most});
}

Expr optional(Expr part) { return repeat(std::move(part), 0, 1); }
Expr rule(RuleId id) { return make({.kind = Kind::kRule, .rule = id}); }
Expr mark(uint32_t index) {
  CHECK(index < 64, "mark ", index);
  return make({.kind = Kind::kMark, .rule = index});
}
Expr marked(uint64_t marks) {
  return marks == 0 ? literal("") : make({.kind = Kind::kMarked, .marks = marks});
}
Expr unmarked(uint64_t marks) {
  return marks == 0 ? nothing() : make({.kind = Kind::kUnmarked, .marks = marks});
}
Expr dfa(std::shared_ptr<const ByteDfa> automaton, std::vector<Expr> then) {
  return make({.kind = Kind::kDfa, .parts = std::move(then), .dfa = std::move(automaton)});
}

void GraphBuilder::add(uint32_t from, uint32_t to, Expr part) {
  if (part->kind == Kind::kNothing) return;
  arcs_.push_back({from, to});
  parts_.push_back(std::move(part));
}

Expr GraphBuilder::build() && {
  return make({.kind = Kind::kGraph, .parts = std::move(parts_), .arcs = std::move(arcs_)});
}

std::vector<CodePointRange> normalised(const std::vector<CodePointRange>& ranges) {
  std::vector<CodePointRange> scalar;
  for (CodePointRange range : ranges) {  // cut the surrogates out
    range.last = std::min(range.last, kLastCodePoint);
    if (range.first > range.last) continue;
    if (range.first < 0xD800)
      scalar.push_back({range.first, std::min<char32_t>(range.last, 0xD7FF)});
    if (range.last > 0xDFFF)
      scalar.push_back({std::max<char32_t>(range.first, 0xE000), range.last});
  }
  std::ranges::sort(scalar, {}, &CodePointRange::first);
  std::vector<CodePointRange> out;
  for (const CodePointRange& range : scalar) {
    if (!out.empty() && range.first <= out.back().last + 1)
      out.back().last = std::max(out.back().last, range.last);
    else
      out.push_back(range);
  }
  return out;
}

std::vector<CodePointRange> complement(const std::vector<CodePointRange>& ranges) {
  std::vector<CodePointRange> out;
  char32_t next = 0;
  for (const CodePointRange& range : normalised(ranges)) {
    if (range.first > next) out.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) out.push_back({next, kLastCodePoint});
  return normalised(out);
}

Expr characters(const std::vector<CodePointRange>& ranges) {
  constexpr std::array<CodePointRange, 4> kLengths = {
      {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, kLastCodePoint}}};
  std::vector<Expr> parts;
  ByteSet ascii;
  for (const CodePointRange& range : normalised(ranges)) {
    for (const CodePointRange& length : kLengths) {
      const char32_t first = std::max(range.first, length.first);
      const char32_t last = std::min(range.last, length.last);
      if (first > last) continue;
      if (last < 0x80)
        for (char32_t c = first; c <= last; ++c) ascii.set(c);
      else
        add_encoded(encode(first), encode(last), 0, {}, parts);
    }
  }
  parts.insert(parts.begin(), byte_of(ascii));
  return choice(std::move(parts));
}

}  // namespace pewter::grammar
