// --speculative-config: drafting as vLLM spells it, {"method": "mtp", "num_speculative_tokens": 3}.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/drafter.h"

namespace pewter {

struct SpeculativeConfig {
  DraftOptions draft;
  std::string model;                  // directory of a drafter; "": none
  std::vector<std::string> warnings;  // keys that change nothing here
};

// mtp (or the older qwen3_5_mtp, qwen3_next_mtp), dflash, suffix (or ngram), auto, none. Error:
// kInvalidArgument with the methods there are.
Result<DraftMethod> draft_method(std::string_view name);
std::string_view draft_method_name(DraftMethod method);
// Most tokens to draft where nobody said how many.
int64_t default_draft_tokens(DraftMethod method, DraftLength depth);

// How many tokens are drafted a step: auto, or fixed:k. Error: kInvalidArgument.
struct SpeculativeDepth {
  DraftLength depth = DraftLength::kByCost;
  std::optional<int64_t> tokens;  // with fixed
};
Result<SpeculativeDepth> parse_speculative_depth(std::string_view text);

// Error: kInvalidArgument when a method lacks its drafter, or a drafter has no use.
Status check_drafter(const SpeculativeConfig& config, std::string_view method_flag,
                     std::string_view model_flag);

// Keys: method, model, num_speculative_tokens (0: off), prompt_lookup_min. Errors: kInvalidArgument
// naming the key.
Result<SpeculativeConfig> parse_speculative_config(const Json& json,
                                                   DraftLength depth = DraftLength::kByCost);

}  // namespace pewter
