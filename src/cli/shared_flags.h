// Flags that several commands have: which model runs where, and how tokens are chosen.
#pragma once

#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/loaded_model.h"
#include "cli/speculative_config.h"

namespace pewter {

// Halves what the head of a token reads; what it costs: docs/numerics.md.
inline constexpr const char* kDefaultLmHead = "int8";

// Error: "--port: 70000 is outside [0, 65535]", when the flag is there and its value is not.
Status check_range(const char* flag, const std::optional<int64_t>& value, int64_t least,
                   int64_t most);

// A flag whose value is a JSON object; null without the flag. Error: kInvalidArgument with what
// looks wrong: typographic quotes, a string that the shell has cut.
Result<Json> json_flag(const char* flag, const std::optional<std::string>& text);

struct ModelFlags {
  std::string model, device = "auto", lm_head = kDefaultLmHead;
  std::optional<int64_t> threads, max_model_len, draft_tokens;
  std::optional<float> gpu_memory_utilization, memory_gb;
  std::optional<std::string> cache_bytes, speculative_config, speculate, speculative_depth,
      draft_model, draft_head_rows;

  void declare_model(Flags& flags);    // the positional MODEL
  void declare_backend(Flags& flags);  // the rest
  Status check() const;
  ModelOptions model_options() const;

 private:
  Result<SpeculativeConfig> speculation() const;
};

struct SamplingFlags {
  std::optional<float> temperature, top_p, min_p;
  std::optional<float> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k;
  std::optional<uint64_t> seed;

  void declare(Flags& flags);
  Status check() const;
  // The defaults with every given flag in place.
  SamplingParams apply(SamplingParams defaults) const;
};

}  // namespace pewter
