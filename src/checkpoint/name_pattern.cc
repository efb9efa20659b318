#include "checkpoint/name_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

namespace pewter {
namespace {

// A config is untrusted text; module names are short. Generous for any honest pattern.
constexpr uint32_t kMatchLimit = 100'000;

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

// Limits of every match, shared: reading it is thread-safe.
pcre2_match_context* match_limits() {
  static const std::shared_ptr<pcre2_match_context> kLimits = [] {
    pcre2_match_context* context = pcre2_match_context_create(nullptr);
    CHECK(context != nullptr, "no memory");
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_depth_limit(context, kMatchLimit);
    return std::shared_ptr<pcre2_match_context>(context, pcre2_match_context_free);
  }();
  return kLimits.get();
}

}  // namespace

Result<NamePattern> NamePattern::compile(std::string_view expression) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(units(expression), expression.size(),
                                   PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code == nullptr) {
    std::array<PCRE2_UCHAR, 256> text{};
    pcre2_get_error_message(error, text.data(), text.size());
    return Error{ErrorCode::kCorruptData,
                 str_cat("\"", expression, "\" is no regular expression (at ", offset, ": ",
                         reinterpret_cast<const char*>(text.data()), ")")};
  }
  NamePattern pattern;
  pattern.code_ = std::shared_ptr<pcre2_code>(code, pcre2_code_free);
  pattern.match_ = std::shared_ptr<pcre2_match_data>(
      pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free);
  CHECK(pattern.match_ != nullptr, "no memory");
  return pattern;
}

bool NamePattern::matches(std::string_view text, bool anchored) const {
  return pcre2_match(static_cast<pcre2_code*>(code_.get()), units(text), text.size(), 0,
                     anchored ? PCRE2_ANCHORED : 0u, static_cast<pcre2_match_data*>(match_.get()),
                     match_limits()) >= 0;
}

}  // namespace pewter
