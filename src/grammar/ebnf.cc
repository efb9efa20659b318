#include "grammar/ebnf.h"

#include <algorithm>
#include <map>

#include "base/utf8.h"
#include "grammar/limits.h"

namespace pewter::grammar {
namespace {

constexpr int kDeepestGroup = 100;
constexpr uint32_t kMostRepeats = 100000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_character(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
}

class EbnfParser {
 public:
  EbnfParser(std::string_view text, Grammar& grammar) : text_(text), grammar_(grammar) {}

  Result<Expr> run() {
    skip_blanks();
    while (at_ < text_.size()) {
      const std::string name = take_name();
      if (name.empty() || !take("::=")) return bad("want a rule: name ::= …");
      TRY_ASSIGN(const RuleId id, rule_named(name));
      if (grammar_.rules[id].body) return bad(str_cat("the rule ", name, " comes twice"));
      TRY_ASSIGN(Expr body, alternatives(0));
      grammar_.rules[id].body = std::move(body);
    }
    for (const auto& [name, use] : rules_)
      if (!grammar_.rules[use.id].body) return bad_at(use.at, str_cat("there is no rule ", name));
    const auto root = rules_.find("root");
    if (root == rules_.end())
      return Error{ErrorCode::kInvalidArgument, "there is no rule root, where a text begins"};
    return rule(root->second.id);
  }

 private:
  struct Use {
    RuleId id;
    size_t at;  // in the text
  };

  Error bad_at(size_t at, std::string_view what) const {
    const auto line = 1 + std::ranges::count(text_.substr(0, at), '\n');
    return {ErrorCode::kInvalidArgument, str_cat("line ", line, ": ", what)};
  }
  Error bad(std::string_view what) const { return bad_at(at_, what); }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_blanks() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else if (std::string_view(" \t\r\n").find(text_[at_]) == std::string_view::npos)
        return;
      else
        ++at_;
    }
  }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    skip_blanks();
    return true;
  }
  std::string take_name() {
    const size_t begin = at_;
    while (is_name_character(peek())) ++at_;
    std::string name(text_.substr(begin, at_ - begin));
    skip_blanks();
    return name;
  }
  // Whether what comes is the beginning of another rule.
  bool at_rule() const {
    size_t at = at_;
    while (at < text_.size() && is_name_character(text_[at])) ++at;
    if (at == at_) return false;
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
    return text_.substr(at).starts_with("::=");
  }

  Result<RuleId> rule_named(const std::string& name) {
    const auto at = rules_.find(name);
    if (at != rules_.end()) return at->second.id;
    if (grammar_.rules.size() >= kMostRules) return bad("too many rules");
    const RuleId id = grammar_.add(name);
    rules_.emplace(name, Use{id, at_});
    return id;
  }

  Result<Expr> alternatives(int depth) {
    if (depth > kDeepestGroup) return bad("groups inside groups are too many");
    std::vector<Expr> parts;
    do {
      TRY_ASSIGN(Expr one, sequence_of(depth));
      parts.push_back(std::move(one));
    } while (take("|"));
    return choice(std::move(parts));
  }

  Result<Expr> sequence_of(int depth) {
    std::vector<Expr> parts;
    while (at_ < text_.size() && peek() != '|' && peek() != ')' && !at_rule()) {
      TRY_ASSIGN(Expr one, atom(depth));
      TRY_ASSIGN(one, repeated(std::move(one)));
      parts.push_back(std::move(one));
    }
    if (depth == 0 && peek() == ')') return bad("a ) without (");
    return sequence(std::move(parts));
  }

  Result<Expr> repeated(Expr part) {
    for (int signs = 0;; ++signs) {
      uint32_t least = 0, most = kUnlimited;
      if (take("*")) {
      } else if (take("+")) {
        least = 1;
      } else if (take("?")) {
        most = 1;
      } else if (take("{")) {
        TRY_ASSIGN(least, count());
        most = least;
        if (take(",")) {
          most = kUnlimited;
          if (is_digit(peek())) {
            TRY_ASSIGN(most, count());
          }
        }
        if (!take("}")) return bad("a count without }");
        if (least > most) return bad("a count whose limits are the wrong way round");
      } else {
        return part;
      }
      if (signs > kMostSigns) return bad("too many repeats");
      part = repeat(std::move(part), least, most);
    }
  }

  Result<uint32_t> count() {
    if (!is_digit(peek())) return bad("want a count");
    uint32_t value = 0;
    for (; is_digit(peek()); ++at_) {
      value = value * 10 + static_cast<uint32_t>(peek() - '0');
      if (value > kMostRepeats) return bad(str_cat("a count above ", kMostRepeats));
    }
    skip_blanks();
    return value;
  }

  Result<Expr> atom(int depth) {
    if (take("(")) {
      TRY_ASSIGN(Expr inside, alternatives(depth + 1));
      if (!take(")")) return bad("a ( without )");
      return inside;
    }
    if (take(".")) return characters(complement({{'\n', '\n'}, {'\r', '\r'}}));
    if (peek() == '"') return quoted();
    if (peek() == '[') return bracket();
    const std::string name = take_name();
    if (name.empty()) return bad("want a text in quotes, a [set], a rule's name or a group");
    TRY_ASSIGN(const RuleId id, rule_named(name));
    return rule(id);
  }

  Result<Expr> quoted() {
    ++at_;
    std::string text;
    while (peek() != '"') {
      if (at_ >= text_.size() || peek() == '\n') return bad("a text without its closing quote");
      TRY_ASSIGN(const char32_t c, character());
      append_utf8(text, c);
    }
    ++at_;
    skip_blanks();
    return literal(text);
  }

  Result<Expr> bracket() {
    ++at_;
    const bool negated = peek() == '^';
    if (negated) ++at_;
    std::vector<CodePointRange> ranges;
    while (peek() != ']') {
      if (at_ >= text_.size() || peek() == '\n') return bad("a [ without ]");
      TRY_ASSIGN(const char32_t first, character());
      char32_t last = first;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        TRY_ASSIGN(last, character());
      }
      if (first > last) return bad("a range that is the wrong way round");
      ranges.push_back({first, last});
    }
    ++at_;
    skip_blanks();
    return characters(negated ? complement(ranges) : ranges);
  }

  // One character of a text or a set, escaped or not.
  Result<char32_t> character() {
    if (peek() != '\\') {
      const Utf8Step step = utf8_next(text_.substr(at_));
      if (!step.valid) return bad("a byte that is not UTF-8");
      at_ += static_cast<size_t>(step.length);
      return step.code_point;
    }
    const char c = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    at_ += 2;
    switch (c) {
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case '"':
      case '\\':
      case '[':
      case ']':
      case '^':
      case '-':
        return static_cast<char32_t>(c);
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      default:
        at_ -= 2;
        return bad("a \\ before what has no meaning there");
    }
  }

  Result<char32_t> hex(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const char c = peek(), lower = static_cast<char>(c | 0x20);
      if (is_digit(c))
        value = value * 16 + static_cast<uint32_t>(c - '0');
      else if (lower >= 'a' && lower <= 'f')
        value = value * 16 + static_cast<uint32_t>(lower - 'a' + 10);
      else
        return bad("an escape without its hexadecimal digits");
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
      return bad("an escape that is no character");
    return static_cast<char32_t>(value);
  }

  static constexpr int kMostSigns = 16;  // one after another
  std::string_view text_;
  size_t at_ = 0;
  Grammar& grammar_;
  std::map<std::string, Use> rules_;
};

}  // namespace

Result<Expr> add_ebnf(std::string_view text, Grammar& grammar) {
  constexpr size_t kLongest = 1 << 18;
  if (text.size() > kLongest)
    return Error{ErrorCode::kInvalidArgument, str_cat("longer than ", kLongest, " bytes")};
  return EbnfParser(text, grammar).run();
}

}  // namespace pewter::grammar
