#include "grammar/regex.h"

#include <algorithm>

#include "base/utf8.h"
#include "grammar/limits.h"

namespace pewter::grammar {
namespace {

using Ranges = std::vector<CodePointRange>;

constexpr char32_t kEnd = 0xFFFFFFFF;  // behind the pattern's last character
constexpr int kDeepestGroup = 100;
constexpr uint32_t kMostRepeats = 100000;

const Ranges kDigits = {{'0', '9'}};
const Ranges kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Ranges kSpace = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                       {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                       {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const Ranges kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class RegexParser {
 public:
  RegexParser(std::string_view pattern, const RegexOptions& options) : options_(options) {
    for (std::string_view rest = pattern; !rest.empty();) {
      const Utf8Step step = utf8_next(rest);
      text_.push_back(step.code_point);
      rest.remove_prefix(static_cast<size_t>(step.length));
    }
  }

  Result<Expr> run() {
    std::vector<Expr> alternatives;
    do {
      TRY_ASSIGN(Expr one, outer_alternative());
      alternatives.push_back(std::move(one));
    } while (take('|'));
    if (peek() != kEnd) return bad("an unmatched )");
    return choice(std::move(alternatives));
  }

 private:
  char32_t peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : kEnd;
  }
  bool take(char32_t c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool take(std::u32string_view word) {
    for (size_t i = 0; i < word.size(); ++i)
      if (peek(i) != word[i]) return false;
    at_ += word.size();
    return true;
  }
  Error bad(std::string_view what) const {
    return {ErrorCode::kInvalidArgument, str_cat("at character ", at_, ": ", what)};
  }
  Error unsupported(std::string_view what) const {
    return {ErrorCode::kUnsupported,
            str_cat("at character ", at_, ": ", what, " are not supported in patterns")};
  }
  Expr anything() const { return repeat(options_.encode({{0, 0x10FFFF}}), 0, kUnlimited); }

  // An alternative with its anchors.
  Result<Expr> outer_alternative() {
    const bool from_begin = take('^') || options_.whole;
    TRY_ASSIGN(Expr body, terms(0));
    const bool to_end = take('$') || options_.whole;
    if (peek() != '|' && peek() != kEnd && peek() != ')')
      return unsupported("anchors inside an alternative");
    std::vector<Expr> parts;
    if (!from_begin) parts.push_back(anything());
    parts.push_back(std::move(body));
    if (!to_end) parts.push_back(anything());
    return sequence(std::move(parts));
  }

  Result<Expr> alternatives(int depth) {
    if (depth > kDeepestGroup) return bad("groups inside groups are too many");
    std::vector<Expr> parts;
    do {
      TRY_ASSIGN(Expr one, terms(depth));
      parts.push_back(std::move(one));
    } while (take('|'));
    return choice(std::move(parts));
  }

  Result<Expr> terms(int depth) {
    std::vector<Expr> parts;
    while (peek() != kEnd && peek() != '|' && peek() != ')' && peek() != '$') {
      TRY_ASSIGN(Expr one, atom(depth));
      TRY_ASSIGN(one, quantified(std::move(one)));
      parts.push_back(std::move(one));
    }
    if (depth > 0 && peek() == '$') return unsupported("anchors inside groups");
    return sequence(std::move(parts));
  }

  Result<Expr> quantified(Expr part) {
    uint32_t least = 0, most = kUnlimited;
    if (take('*')) {
    } else if (take('+')) {
      least = 1;
    } else if (take('?')) {
      most = 1;
    } else if (peek() == '{' && is_digit(peek(1))) {
      ++at_;
      TRY_ASSIGN(least, count());
      most = least;
      if (take(',')) {
        most = kUnlimited;
        if (peek() != '}') {
          TRY_ASSIGN(most, count());
        }
      }
      if (!take('}')) return bad("a count without }");
      if (least > most) return bad("a count whose limits are the wrong way round");
    } else {
      return part;
    }
    take('?');  // lazy: the same texts
    if (peek() == '+') return unsupported("possessive repeats");
    if (peek() == '*' || peek() == '?') return bad("nothing to repeat");
    return repeat(std::move(part), least, most);
  }

  static bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }

  Result<uint32_t> count() {
    if (!is_digit(peek())) return bad("a count that is no number");
    uint32_t value = 0;
    for (; is_digit(peek()); ++at_) {
      value = value * 10 + static_cast<uint32_t>(peek() - '0');
      if (value > kMostRepeats) return bad(str_cat("a count above ", kMostRepeats));
    }
    return value;
  }

  Result<Expr> atom(int depth) {
    const char32_t c = peek();
    if (c == '(') return group(depth);
    if (c == '[') {
      TRY_ASSIGN(const Ranges ranges, bracket());
      return options_.encode(ranges);
    }
    if (c == '.') {
      ++at_;
      return options_.encode(complement(kLineEnds));
    }
    if (c == '*' || c == '+' || c == '?') return bad("nothing to repeat");
    if (c == '^') return unsupported("anchors inside an alternative");
    if (c == '\\') {
      TRY_ASSIGN(const Ranges ranges, escape(/*in_bracket=*/false));
      return options_.encode(ranges);
    }
    ++at_;
    return options_.encode({{c, c}});
  }

  Result<Expr> group(int depth) {
    ++at_;
    if (peek() == '?') {
      if (take(U"?:")) {
      } else if (take(U"?=") || take(U"?!") || take(U"?<=") || take(U"?<!")) {
        return unsupported("look-ahead and look-behind");
      } else if (take(U"?<") || take(U"?P<")) {
        while (peek() != '>' && peek() != kEnd) ++at_;
        if (!take('>')) return bad("a group's name without >");
      } else {
        return unsupported("flags and special groups");
      }
    }
    TRY_ASSIGN(Expr inside, alternatives(depth + 1));
    if (!take(')')) return bad("a group without )");
    return inside;
  }

  Result<Ranges> bracket() {
    ++at_;
    const bool negated = take('^');
    Ranges ranges;
    while (peek() != ']') {
      TRY_ASSIGN(Ranges one, bracket_item());
      if (peek() == '-' && peek(1) != ']' && peek(1) != kEnd) {
        ++at_;
        TRY_ASSIGN(const Ranges last, bracket_item());
        const auto is_one = [](const Ranges& r) {
          return r.size() == 1 && r[0].first == r[0].last;
        };
        if (!is_one(one) || !is_one(last)) return bad("a range between more than characters");
        if (one[0].first > last[0].first) return bad("a range that is the wrong way round");
        one = {{one[0].first, last[0].first}};
      }
      ranges.insert(ranges.end(), one.begin(), one.end());
    }
    ++at_;
    return negated ? complement(ranges) : normalised(ranges);
  }

  Result<Ranges> bracket_item() {
    if (peek() == '\\') return escape(/*in_bracket=*/true);
    const char32_t c = peek();
    if (c == kEnd) return bad("a [ without ]");
    ++at_;
    return Ranges{{c, c}};
  }

  Result<Ranges> escape(bool in_bracket) {
    ++at_;
    const char32_t c = peek();
    if (c == kEnd) return bad("a \\ at the end");
    ++at_;
    const auto one = [](char32_t character) { return Ranges{{character, character}}; };
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return complement(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return complement(kWord);
      case 's':
        return kSpace;
      case 'S':
        return complement(kSpace);
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        return one(0);
      case 'b':
        if (in_bracket) return one('\b');
        return unsupported("word borders");
      case 'B':
        return unsupported("word borders");
      case 'p':
      case 'P':
        return unsupported("Unicode properties");
      case 'x': {
        TRY_ASSIGN(const char32_t value, hex(2));
        return one(value);
      }
      case 'u':
        return unicode_escape();
      default:
        break;
    }
    if (is_digit(c) || c == 'k') return unsupported("back-references");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
      return bad("a \\ before a letter that has no meaning there");
    return one(c);
  }

  Result<Ranges> unicode_escape() {
    char32_t value = 0;
    if (take('{')) {
      size_t digits = 0;
      while (digits < 6 && peek(digits) != '}' && peek(digits) != kEnd) ++digits;
      TRY_ASSIGN(value, hex(digits));
      if (!take('}')) return bad("a \\u{ without }");
    } else {
      TRY_ASSIGN(value, hex(4));
      if (value >= 0xD800 && value < 0xDC00 && take(U"\\u")) {
        TRY_ASSIGN(const char32_t low, hex(4));
        if (low < 0xDC00 || low > 0xDFFF) return bad("half a surrogate pair");
        value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
      }
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
      return bad("an escape that is no character");
    return Ranges{{value, value}};
  }

  Result<char32_t> hex(size_t digits) {
    char32_t value = 0;
    if (digits == 0) return bad("an escape without hexadecimal digits");
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const char32_t c = peek();
      const char32_t lower = c | 0x20;
      if (is_digit(c))
        value = value * 16 + (c - '0');
      else if (c < 0x80 && lower >= 'a' && lower <= 'f')
        value = value * 16 + (lower - 'a' + 10);
      else
        return bad("an escape without hexadecimal digits");
    }
    return value;
  }

  const RegexOptions& options_;
  std::u32string text_;
  size_t at_ = 0;
};

}  // namespace

Result<Expr> parse_regex(std::string_view pattern, const RegexOptions& options) {
  constexpr size_t kLongest = 1 << 16;
  if (pattern.size() > kLongest)
    return Error{ErrorCode::kInvalidArgument, str_cat("longer than ", kLongest, " bytes")};
  return RegexParser(pattern, options).run();
}

}  // namespace pewter::grammar
