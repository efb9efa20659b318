// What a grammar is made of before it is compiled: expressions over bytes, and named rules. Front
// ends (regex.h, json_schema.h, ebnf.h, tool_grammar.h) write them, automaton.h compiles them.
// Immutable once made, so parts are shared.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace pewter::grammar {

using ByteSet = std::bitset<256>;
using RuleId = uint32_t;
inline constexpr uint32_t kUnlimited = UINT32_MAX;

struct CodePointRange {
  char32_t first = 0, last = 0;  // inclusive
};

struct Expression;
using Expr = std::shared_ptr<const Expression>;

// A deterministic automaton over bytes whose ends are numbered; automaton of first_match and
// intersection below.
struct ByteDfa {
  struct Edge {
    uint8_t first = 0, last = 0;
    uint32_t target = 0;
  };
  struct State {
    std::vector<Edge> edges;  // ascending, without overlaps
    int32_t end = -1;         // the end that is reached here, or -1
  };
  std::vector<State> states;  // the first one is the start
};

// An arc of a graph of expressions.
struct Arc {
  uint32_t from = 0, to = 0;
};

struct Expression {
  enum class Kind : uint8_t {
    kNothing,   // matches no text at all
    kLiteral,   // text, which may be empty
    kBytes,     // one byte of a set
    kSequence,  // parts one after another
    kChoice,    // any one of the parts
    kRepeat,    // parts[0], least to most times
    kRule,      // a rule of the grammar
    kDfa,       // dfa, then parts[i] where end i was reached
    kGraph,     // a way from node 0 to node 1 along arcs, reading parts[i] on arc i
    // Marks of the rule they stand in, 64 of them, none set when the rule begins. They match the
    // empty text if their condition holds. A rule has either marks or repeats that count.
    kMark,      // the mark `rule` is not set, and is from here on
    kMarked,    // all marks of `marks` are set
    kUnmarked,  // not all of `marks` are set
  };
  Kind kind = Kind::kNothing;
  std::string text;
  ByteSet bytes;
  std::vector<Expr> parts;
  uint32_t least = 0, most = 0;
  RuleId rule = 0;
  uint64_t marks = 0;
  std::shared_ptr<const ByteDfa> dfa;
  std::vector<Arc> arcs;  // beside parts
};

Expr nothing();
Expr literal(std::string_view text);
Expr byte_of(const ByteSet& set);
Expr byte_range(uint8_t first, uint8_t last);
Expr sequence(std::vector<Expr> parts);
Expr choice(std::vector<Expr> parts);
Expr repeat(Expr part, uint32_t least, uint32_t most);
Expr optional(Expr part);
Expr rule(RuleId id);
Expr mark(uint32_t index);
Expr marked(uint64_t marks);
Expr unmarked(uint64_t marks);
Expr dfa(std::shared_ptr<const ByteDfa> automaton, std::vector<Expr> then);
// Lists with many parts that may be missing grow with their length this way, not with its square.
class GraphBuilder {
 public:
  static constexpr uint32_t kBegin = 0, kEnd = 1;
  uint32_t add_node() { return nodes_++; }
  void add(uint32_t from, uint32_t to, Expr part);
  Expr build() &&;

 private:
  uint32_t nodes_ = 2;
  std::vector<Arc> arcs_;
  std::vector<Expr> parts_;
};

// One character of the ranges, as UTF-8. Surrogates are left out.
Expr characters(const std::vector<CodePointRange>& ranges);
// Sorted, without overlaps, within Unicode's scalar values.
std::vector<CodePointRange> normalised(const std::vector<CodePointRange>& ranges);
// Every scalar value that is in none of them.
std::vector<CodePointRange> complement(const std::vector<CodePointRange>& ranges);

struct Grammar {
  struct Rule {
    std::string name;  // for messages
    Expr body;
  };
  std::vector<Rule> rules;  // the first one is where a text begins

  RuleId add(std::string name, Expr body = nullptr) {
    rules.push_back({std::move(name), std::move(body)});
    return static_cast<RuleId>(rules.size() - 1);
  }
};

}  // namespace pewter::grammar
