#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/utf8.h"
#include "text/jinja/literals.h"
#include "text/jinja/text.h"
#include "text/jinja/unicode.h"

namespace pewter::jinja {
namespace {

// Line ends become \n, and one at the very end is dropped.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

size_t skip_spaces(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Step step = utf8_next(text.substr(at));
    if (!is_space(step.code_point)) break;
    at += static_cast<size_t>(step.length);
  }
  return at;
}

// The end of text without the whitespace behind it.
size_t trimmed_end(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_next(text.substr(at));
    at += static_cast<size_t>(step.length);
    if (!is_space(step.code_point)) end = at;
  }
  return end;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) {
      const size_t begin = next_tag();
      if (begin == std::string_view::npos) {
        add(Token::Kind::kText, std::string(source_.substr(at_)));
        break;
      }
      TRY(tag(begin));
    }
    line_ = line_of(source_.size());
    add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  Error error(std::string_view message) const {
    return Error{ErrorCode::kCorruptData, str_cat("line ", line_, ": ", message)};
  }
  void add(Token::Kind kind, std::string text) {
    if (kind == Token::Kind::kText && text.empty()) return;
    tokens_.push_back({kind, std::move(text), line_});
  }
  bool at_text(size_t at, std::string_view text) const {
    return source_.substr(at, text.size()) == text;
  }
  // Lines are counted forward from where they were counted last.
  int line_of(size_t offset) {
    line_counted_ +=
        static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(counted_to_),
                                    source_.begin() + static_cast<std::ptrdiff_t>(offset), '\n'));
    counted_to_ = offset;
    return line_counted_;
  }
  void move_to(size_t offset) {
    at_ = offset;
    line_ = line_of(offset);
  }

  size_t next_tag() const {
    for (size_t i = at_; (i = source_.find('{', i)) != std::string_view::npos; ++i) {
      const char c = i + 1 < source_.size() ? source_[i + 1] : '\0';
      if (c == '{' || c == '%' || c == '#') return i;
    }
    return std::string_view::npos;
  }

  // Text before a tag, which begins at `begin` with this sign after its brace.
  void add_text_before(size_t begin, char sign, bool strip_line) {
    const std::string_view text = source_.substr(at_, begin - at_);
    size_t end = text.size();
    if (sign == '-') {
      end = trimmed_end(text);
    } else if (sign != '+' && strip_line) {
      const size_t newline = text.rfind('\n');
      const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_begin > 0 || line_starting_) && skip_spaces(text, line_begin) == text.size())
        end = line_begin;
    }
    add(Token::Kind::kText, std::string(text.substr(0, end)));
  }

  char sign_at(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  // After "%}" or "#}" that ended just before `at`: where the text goes on.
  size_t after_tag(size_t at, char sign, bool trim_newline) const {
    if (sign == '-') return skip_spaces(source_, at);
    if (sign == '\0' && trim_newline && at < source_.size() && source_[at] == '\n') return at + 1;
    return at;
  }
  void resume(size_t at) {
    line_starting_ = at > 0 && source_[at - 1] == '\n';
    move_to(at);
  }

  Status tag(size_t begin) {
    const char kind = source_[begin + 1];
    const char sign = sign_at(begin + 2);
    add_text_before(begin, sign, kind != '{');
    move_to(begin);
    const size_t inside = begin + 2 + (sign == '\0' ? 0 : 1);
    if (kind == '#') return comment(inside);
    if (kind == '%') {
      const size_t word = skip_spaces(source_, inside);
      const size_t end = skip_spaces(source_, word + 3);
      if (at_text(word, "raw") && (at_text(end, "%}") || at_text(end, "-%}"))) {
        const bool strip = source_[end] == '-';
        return raw(strip ? skip_spaces(source_, end + 3) : end + 2);
      }
    }
    add(kind == '{' ? Token::Kind::kOutputBegin : Token::Kind::kBlockBegin, "");
    move_to(inside);
    return tag_tokens(kind == '{');
  }

  Status comment(size_t inside) {
    const size_t end = source_.find("#}", inside);
    if (end == std::string_view::npos) return error("a comment does not end");
    const char sign = end > inside ? sign_at(end - 1) : '\0';
    resume(after_tag(end + 2, sign, true));
    return {};
  }

  Status raw(size_t inside) {
    resume(inside);
    for (size_t i = inside; (i = source_.find("{%", i)) != std::string_view::npos; ++i) {
      const char sign = sign_at(i + 2);
      const size_t word = skip_spaces(source_, i + 2 + (sign == '\0' ? 0 : 1));
      if (!at_text(word, "endraw")) continue;
      const size_t end = skip_spaces(source_, word + 6);
      const char end_sign = sign_at(end);
      const size_t close = end + (end_sign == '\0' ? 0 : 1);
      if (!at_text(close, "%}")) continue;
      add_text_before(i, sign, true);
      resume(after_tag(close + 2, end_sign, true));
      return {};
    }
    return error("a raw block does not end");
  }

  // Tokens up to the end of the tag. Inside brackets "}}" and "%}" do not end it.
  Status tag_tokens(bool output) {
    const std::string_view close = output ? "}}" : "%}";
    std::string open_brackets;
    while (true) {
      move_to(skip_spaces(source_, at_));
      if (at_ >= source_.size()) return error("a tag does not end");
      if (open_brackets.empty()) {
        const char sign = sign_at(at_);
        const size_t mark = at_ + (sign == '\0' || (output && sign == '+') ? 0 : 1);
        if (at_text(mark, close)) {
          add(output ? Token::Kind::kOutputEnd : Token::Kind::kBlockEnd, "");
          resume(after_tag(mark + 2, mark == at_ ? '\0' : sign, !output));
          return {};
        }
      }
      TRY(token(open_brackets));
    }
  }

  Status token(std::string& open_brackets) {
    const std::string_view rest = source_.substr(at_);
    const char c = rest[0];
    if (is_digit(c)) return number(rest);
    if (c == '\'' || c == '"') return string(rest);
    if (is_word(utf8_next(rest).code_point)) {
      size_t length = 0;
      while (length < rest.size()) {
        const Utf8Step step = utf8_next(rest.substr(length));
        if (!is_word(step.code_point)) break;
        length += static_cast<size_t>(step.length);
      }
      add(Token::Kind::kName, std::string(rest.substr(0, length)));
      move_to(at_ + length);
      return {};
    }
    for (const std::string_view op : kOperators) {
      if (!rest.starts_with(op)) continue;
      if (op == "(" || op == "[" || op == "{") open_brackets += op[0];
      if (op == ")" || op == "]" || op == "}") {
        const char open = op == ")" ? '(' : op == "]" ? '[' : '{';
        if (open_brackets.empty() || open_brackets.back() != open)
          return error(str_cat("unexpected '", op, "'"));
        open_brackets.pop_back();
      }
      add(Token::Kind::kOperator, std::string(op));
      move_to(at_ + op.size());
      return {};
    }
    return error(str_cat("unexpected character '",
                         rest.substr(0, static_cast<size_t>(utf8_next(rest).length)), "'"));
  }

  Status number(std::string_view rest) {
    // A digit right after a dot is an index (x.0), never the start of a fraction.
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    TRY_ASSIGN(const NumberLiteral literal, read_number(rest, !after_dot));
    add(literal.is_float ? Token::Kind::kFloat : Token::Kind::kInteger, literal.text);
    move_to(at_ + literal.length);
    return {};
  }

  Status string(std::string_view rest) {
    size_t end = 1;
    while (end < rest.size() && rest[end] != rest[0]) end += rest[end] == '\\' ? 2u : 1u;
    if (end >= rest.size()) return error("a string does not end");
    const Result<std::string> value = unescape(rest.substr(1, end - 1));
    if (!value) return error(value.error().message);
    add(Token::Kind::kString, *value);
    move_to(at_ + end + 1);
    return {};
  }

  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  size_t counted_to_ = 0;
  int line_counted_ = 1;
  bool line_starting_ = true;  // the text at at_ begins a line
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  const size_t invalid = find_invalid_utf8(source);
  if (invalid != std::string_view::npos)
    return Error{ErrorCode::kCorruptData, str_cat("byte ", invalid, " is no UTF-8")};
  const std::string text = normalize_newlines(source);
  return Lexer(text).run();
}

}  // namespace pewter::jinja
