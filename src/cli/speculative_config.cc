#include "cli/speculative_config.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "server/request/fields.h"

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
    MethodName{"dflash", DraftMethod::kDflash},
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
                       "\" is no method that works here: want mtp, dflash, suffix (ngram), auto or "
                       "none")};
}

std::string_view draft_method_name(DraftMethod method) {
  return std::ranges::find(kMethods, method, &MethodName::method)->name;
}

// A guess of the MTP layer costs a pass of it, one of the suffix drafter only a row. Chosen by
// cost, more is allowed than usually pays. All guesses of a block drafter cost one pass.
int64_t default_draft_tokens(DraftMethod method, DraftLength depth) {
  if (method == DraftMethod::kNone) return 0;
  if (method == DraftMethod::kDflash) return kMaxDrafts;
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

Status check_drafter(const SpeculativeConfig& config, std::string_view method_flag,
                     std::string_view model_flag) {
  const DraftMethod method = config.draft.method;
  if (method == DraftMethod::kDflash && config.model.empty())
    return Error{ErrorCode::kInvalidArgument, str_cat(method_flag, ": dflash needs ", model_flag,
                                                      ", the directory of its drafter")};
  if (!config.model.empty() && method != DraftMethod::kDflash && method != DraftMethod::kAuto)
    return Error{ErrorCode::kInvalidArgument,
                 str_cat(model_flag, ": a drafter is for dflash or auto, not for ",
                         draft_method_name(method))};
  return {};
}

Result<SpeculativeConfig> parse_speculative_config(const Json& json, DraftLength depth) {
  SpeculativeConfig config;
  config.draft.depth = depth;
  TRY_ASSIGN(server::Fields fields, server::Fields::of(json, ""));
  std::optional<std::string> method, model;
  TRY(fields.read("method", method));
  if (!method)
    return Error{ErrorCode::kInvalidArgument,
                 "method: is missing; want mtp, dflash, suffix (ngram) or auto"};
  const Result<DraftMethod> known = draft_method(*method);
  if (!known) return known.error().within("method");
  config.draft.method = *known;
  config.draft.tokens = default_draft_tokens(*known, depth);
  TRY(fields.read("num_speculative_tokens", config.draft.tokens, {.least = 0, .most = kMaxDrafts}));
  TRY(fields.read("prompt_lookup_min", config.draft.shortest_match, {.least = 1}));
  TRY(fields.read("model", model));
  config.model = model.value_or("");
  TRY(config.draft.validate());
  TRY(check_drafter(config, "method", "model"));
  for (const std::string& key : fields.unread())
    config.warnings.push_back(str_cat("--speculative-config: ", key, " changes nothing here"));
  return config;
}

}  // namespace pewter
