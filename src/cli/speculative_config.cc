#include "cli/speculative_config.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "server/openai/fields.h"

namespace pewter {
namespace {

struct MethodName {
  std::string_view name;
  DraftMethod method;
};
// The first of a method is its own name.
constexpr std::array kMethods = {
    MethodName{"mtp", DraftMethod::kMtp},
    MethodName{"qwen3_5_mtp", DraftMethod::kMtp},
    MethodName{"qwen3_next_mtp", DraftMethod::kMtp},
    MethodName{"suffix", DraftMethod::kSuffix},
    MethodName{"ngram", DraftMethod::kSuffix},
    MethodName{"auto", DraftMethod::kAuto},
    MethodName{"none", DraftMethod::kNone},
};

}  // namespace

Result<DraftMethod> draft_method(std::string_view name) {
  const auto* const known = std::ranges::find(kMethods, name, &MethodName::name);
  if (known != kMethods.end()) return known->method;
  return Error{ErrorCode::kInvalidArgument,
               str_cat("\"", name,
                       "\" is no method that works here: want mtp, suffix (ngram), auto "
                       "or none",
                       name == "dflash" ? "; dflash is not there yet" : "")};
}

std::string_view draft_method_name(DraftMethod method) {
  return std::ranges::find(kMethods, method, &MethodName::method)->name;
}

// A guess of the MTP layer costs a pass of it, one of the suffix drafter only a row. Chosen by
// cost, more is allowed than usually pays.
int64_t default_draft_tokens(DraftMethod method, DraftLength depth) {
  if (method == DraftMethod::kNone) return 0;
  return method == DraftMethod::kSuffix || depth == DraftLength::kByCost ? 8 : 3;
}

Result<SpeculativeDepth> parse_speculative_depth(std::string_view text) {
  if (text == "auto") return SpeculativeDepth{};
  constexpr std::string_view kFixed = "fixed:";
  int64_t tokens = 0;
  if (text.starts_with(kFixed)) {
    const std::string_view digits = text.substr(kFixed.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), tokens);
    if (error == std::errc() && end == digits.data() + digits.size() && tokens >= 1 &&
        tokens <= kMaxDrafts)
      return SpeculativeDepth{.depth = DraftLength::kFixed, .tokens = tokens};
  }
  return Error{
      ErrorCode::kInvalidArgument,
      str_cat("\"", text, "\" is no depth: want auto, or fixed:k with k from 1 to ", kMaxDrafts)};
}

Result<SpeculativeConfig> parse_speculative_config(const Json& json, DraftLength depth) {
  SpeculativeConfig config;
  config.draft.depth = depth;
  TRY_ASSIGN(server::Fields fields, server::Fields::of(json, ""));
  std::optional<std::string> method;
  TRY(fields.read("method", method));
  if (!method)
    return Error{ErrorCode::kInvalidArgument,
                 "method: is missing; want mtp, suffix (ngram) or auto"};
  const Result<DraftMethod> known = draft_method(*method);
  if (!known) return known.error().within("method");
  config.draft.method = *known;
  config.draft.tokens = default_draft_tokens(*known, depth);
  TRY(fields.read("num_speculative_tokens", config.draft.tokens, {.least = 0, .most = kMaxDrafts}));
  TRY(fields.read("prompt_lookup_min", config.draft.shortest_match, {.least = 1}));
  TRY(config.draft.validate());
  for (const std::string& key : fields.unread())
    config.warnings.push_back(str_cat("--speculative-config: ", key, " changes nothing here"));
  return config;
}

}  // namespace pewter
