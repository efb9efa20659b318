#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pre_split.h"

#include <pcre2.h>

#include <algorithm>
#include <array>

#include "base/utf8.h"

namespace pewter {
namespace {

constexpr size_t kJitStackStart = size_t{32} << 10;
constexpr size_t kJitStackLimit = size_t{1} << 20;
constexpr size_t kLeastMatchLimit = 1000000;
// For the interpreter, which takes over when the JIT stack is too small.
constexpr uint32_t kHeapLimitKib = 256 << 10;

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

Error refuse(std::string_view what, size_t offset) {
  return Error{ErrorCode::kUnsupported,
               str_cat("regular expression: ", what, " at byte ", offset, " is not supported")};
}

}  // namespace

// Walks the expression once, copying. Oniguruma's Ruby syntax and PCRE2 agree on literals, groups,
// alternation, greedy and lazy repeats, look-around, plain classes and \p{…}; the rest is refused.
Result<std::string> translate_expression(std::string_view expression) {
  constexpr std::string_view kSameEscapes = "pPdDrntfaex";
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    const char next = i + 1 < expression.size() ? expression[i + 1] : '\0';
    if (c == '\\') {
      const bool alphanumeric = (next >= 'a' && next <= 'z') || (next >= 'A' && next <= 'Z') ||
                                (next >= '0' && next <= '9');
      if (next == 's' || next == 'S')
        out += next == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
      else if (alphanumeric && kSameEscapes.find(next) == std::string_view::npos)
        return refuse(str_cat("\\", next), i);
      else
        out += expression.substr(i, 2);
      ++i;
    } else if (in_class) {
      if (c == '[') return refuse("a class within a class", i);
      if (c == '&' && next == '&') return refuse("&& in a class", i);
      if (c == ']') in_class = false;
      out += c;
    } else if (c == '[') {
      in_class = true;
      out += c;
      if (next == '^') out += expression[++i];
      if (i + 1 < expression.size() && expression[i + 1] == ']') return refuse("[]", i);
    } else if (c == '}' && next == '+') {
      return refuse("}+ (repeat of a repeat or possessive)", i);
    } else if (c == '{' && next == ',') {
      return refuse("{, (repeat without a minimum)", i);
    } else if (c == '(' && next == '*') {
      return refuse("(*", i);
    } else if (c == '(' && next == '?') {
      const char kind = i + 2 < expression.size() ? expression[i + 2] : '\0';
      if (std::string_view(":=!<>i").find(kind) == std::string_view::npos)
        return refuse(str_cat("(?", kind), i);
      if (kind == 'i' && expression.substr(i + 3, 1) != ":" && expression.substr(i + 3, 1) != ")")
        return refuse("an option other than i", i);
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

Result<PreSplit> PreSplit::compile(std::string_view expression) {
  TRY_ASSIGN(const std::string pattern, translate_expression(expression));
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  CHECK(context != nullptr, "out of memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int code = 0;
  size_t offset = 0;
  // Oniguruma's ^ and $ are line anchors; UCP gives \p-based \d and case folding.
  pcre2_code* compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &code, &offset, context.get());
  if (compiled == nullptr)
    return Error{ErrorCode::kCorruptData, str_cat("regular expression: ", pcre2_message(code),
                                                  " at byte ", offset, " of ", pattern)};
  PreSplit split;
  split.code_ = std::shared_ptr<const pcre2_code>(
      compiled, [](const pcre2_code* p) { pcre2_code_free(const_cast<pcre2_code*>(p)); });
  uint32_t matches_empty = 0;
  pcre2_pattern_info(compiled, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0)
    return Error{ErrorCode::kUnsupported,
                 "regular expression: one that matches the empty string is not supported"};
  // No JIT on this machine is no error: pcre2_match interprets then.
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
  return split;
}

struct PreSplit::Matcher::State {
  std::shared_ptr<const pcre2_code> code;
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;

  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

PreSplit::Matcher::Matcher(const PreSplit& split) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.code = split.code_;
  s.data = pcre2_match_data_create(1, nullptr);
  s.context = pcre2_match_context_create(nullptr);
  s.stack = pcre2_jit_stack_create(kJitStackStart, kJitStackLimit, nullptr);
  CHECK(s.data != nullptr && s.context != nullptr, "out of memory");
  if (s.stack != nullptr) pcre2_jit_stack_assign(s.context, nullptr, s.stack);
  pcre2_set_heap_limit(s.context, kHeapLimitKib);
}

PreSplit::Matcher::~Matcher() = default;

Status PreSplit::Matcher::split(std::string_view text, std::vector<size_t>& ends) {
  State& s = *state_;
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  ends.clear();
  // A long run may cost a few steps back per character; an expression that explodes costs more.
  const size_t steps = kLeastMatchLimit + 16 * text.size();
  pcre2_set_match_limit(s.context, static_cast<uint32_t>(std::min<size_t>(steps, UINT32_MAX)));
  for (size_t begin = 0; begin < text.size();) {
    int rc = pcre2_match(s.code.get(), subject, text.size(), begin, PCRE2_NO_UTF_CHECK, s.data,
                         s.context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
      rc = pcre2_match(s.code.get(), subject, text.size(), begin, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       s.data, s.context);
    if (rc == PCRE2_ERROR_NOMATCH) {
      ends.push_back(text.size());
      break;
    }
    if (rc < 0)
      return Error{ErrorCode::kResourceExhausted,
                   str_cat("splitting text for the tokenizer: ", pcre2_message(rc))};
    const size_t* match = pcre2_get_ovector_pointer(s.data);
    if (match[0] > begin) ends.push_back(match[0]);  // a stretch that nothing matches
    ends.push_back(match[1]);
    begin = match[1];
  }
  return {};
}

}  // namespace pewter
