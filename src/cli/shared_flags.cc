#include "cli/shared_flags.h"

#include "base/in_range.h"

#include <algorithm>
#include <charconv>

namespace pewter {
namespace {

constexpr int64_t kMostThreads = 1024;
constexpr float kMostGigabytes = 1e6f;

// 4294967296, 4g, 512m.
std::optional<int64_t> parse_bytes(const std::string& text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || !(number > 0)) return std::nullopt;
  const std::string unit(rest, end);
  if (unit == "g" || unit == "G")
    number *= 1 << 30;
  else if (unit == "m" || unit == "M")
    number *= 1 << 20;
  else if (unit == "k" || unit == "K")
    number *= 1 << 10;
  else if (!unit.empty())
    return std::nullopt;
  if (!(number < 1e18)) return std::nullopt;
  return static_cast<int64_t>(number);
}

static_assert(Flags::kAuto == kLongestContext);

}  // namespace

Status check_range(const char* flag, const std::optional<int64_t>& value, int64_t least,
                   int64_t most) {
  return value ? in_range(flag, *value, least, most) : Status();
}

Result<Json> json_flag(const char* flag, const std::optional<std::string>& text) {
  Result<Json> json = Json::parse(text ? *text : "null");
  if (!text || (json && json->is_object())) return json;
  std::string why = json ? "" : str_cat(": ", json.error().message);
  const bool curly = text->find("“") != std::string::npos || text->find("”") != std::string::npos;
  if (curly)
    why = "; it has typographic quotes where \" belongs" + why;
  else if (!json && text->find('}') == std::string::npos)
    why = "; it has no end: shells cut at blanks and take away quotes, so put it in '…'" + why;
  return Error{ErrorCode::kInvalidArgument, str_cat(flag, ": not a JSON object", why)};
}

void ModelFlags::declare_model(Flags& flags) {
  flags.positional("MODEL", model,
                   "Model directory, a .safetensors file in it, or a hub cache folder");
}

void ModelFlags::declare_backend(Flags& flags) {
  flags.group("Model");
  flags.option("--device", "NAME", device, "auto, cuda, cpu or cpu-reference");
  flags.option("--threads", "N", threads, "CPU threads (default: all that are free to use)");
  flags.option("--lm-head", "NAME", lm_head, "The output head: int8, or bf16, which is as stored");
  flags.token_count_or_auto("--max-model-len", max_model_len,
                            "Prompt and answer together; auto: the longest that fits (default: up "
                            "to 32k, as memory allows)");
  flags.option("--kv-cache-memory-bytes", "N", cache_bytes,
               "Size of the KV cache, such as 4g (default: a context for each request, as memory "
               "allows)");
  flags.option("--gpu-memory-utilization", "R", gpu_memory_utilization,
               "Share of the GPU's memory that may be in use, others' included (default 0.9)");
  flags.option("--memory-gb", "N", memory_gb,
               "On the CPU: gigabytes to plan with (default: what is free, less a tenth or one)");
  flags.group("Speculation (changes the speed, never the text)");
  flags.option(
      "--speculate", "NAME", speculate,
      "Who drafts: mtp, the model's own layer; dflash, a model beside it; suffix, what was said "
      "before; auto, the best there is; none (default)");
  flags.option("--draft-model", "DIR", draft_model, "Directory of the DFlash drafter");
  flags.option("--draft-tokens", "N", draft_tokens,
               "Most tokens drafted a step, 1 to 15 (default 8; dflash a block)");
  flags.option("--speculative-depth", "NAME", speculative_depth,
               "How many tokens are drafted: auto, as many as pay by what steps take and guesses "
               "come to (default), or fixed:k");
  flags.option("--draft-head-rows", "N|FILE", draft_head_rows,
               "Models guess among the N most frequent tokens, or those whose ids stand in a file, "
               "which reads less; everything may still be said (default: all)");
  flags.option("--speculative-config", "JSON", speculative_config,
               "The same as vLLM spells it: {\"method\": \"mtp\", \"num_speculative_tokens\": 3}");
}

Result<SpeculativeConfig> ModelFlags::speculation() const {
  const auto both = [](const char* flag) {
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("--speculative-config: says it all, and excludes ", flag)};
  };
  SpeculativeDepth depth;
  if (speculative_depth) {
    const Result<SpeculativeDepth> given = parse_speculative_depth(*speculative_depth);
    if (!given) return given.error().within("--speculative-depth");
    depth = *given;
    if (draft_tokens && depth.tokens)
      return Error{ErrorCode::kInvalidArgument,
                   "--speculative-depth: fixed:k says how many, and excludes --draft-tokens"};
  }
  if (speculative_config) {
    if (speculate) return both("--speculate");
    if (draft_tokens) return both("--draft-tokens");
    if (draft_model) return both("--draft-model");
    TRY_ASSIGN(const Json json, json_flag("--speculative-config", speculative_config));
    Result<SpeculativeConfig> config = parse_speculative_config(json, depth.depth);
    if (!config) return config.error().within("--speculative-config");
    if (depth.tokens && config->draft.tokens > 0) config->draft.tokens = *depth.tokens;
    return config;
  }
  SpeculativeConfig config;
  if (!speculate) {
    for (const auto& [flag, given] : {std::pair{"--draft-tokens", draft_tokens.has_value()},
                                      {"--speculative-depth", speculative_depth.has_value()},
                                      {"--draft-model", draft_model.has_value()}})
      if (given) return Error{ErrorCode::kInvalidArgument, str_cat(flag, ": needs --speculate")};
    return config;
  }
  const Result<DraftMethod> method = draft_method(*speculate);
  if (!method) return method.error().within("--speculate");
  config.draft.method = *method;
  config.draft.depth = depth.depth;
  const int64_t most = depth.tokens.value_or(default_draft_tokens(*method, depth.depth));
  config.draft.tokens = draft_tokens.value_or(most);
  config.model = draft_model.value_or("");
  TRY(check_drafter(config, "--speculate", "--draft-model"));
  return config;
}

Status ModelFlags::check() const {
  TRY(check_range("--threads", threads, 1, kMostThreads));
  if (lm_head != "int8" && lm_head != "bf16")
    return Error{ErrorCode::kInvalidArgument, "--lm-head: want int8 or bf16"};
  if (cache_bytes && !parse_bytes(*cache_bytes))
    return Error{ErrorCode::kInvalidArgument, str_cat("--kv-cache-memory-bytes: \"", *cache_bytes,
                                                      "\" is no size (4294967296, 4g)")};
  if (gpu_memory_utilization && !(*gpu_memory_utilization > 0 && *gpu_memory_utilization <= 1))
    return Error{
        ErrorCode::kInvalidArgument,
        str_cat("--gpu-memory-utilization: ", *gpu_memory_utilization, " is outside (0, 1]")};
  if (memory_gb && !(*memory_gb > 0 && *memory_gb <= kMostGigabytes))
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("--memory-gb: ", *memory_gb, " is outside (0, ", kMostGigabytes, "]")};
  TRY(check_range("--draft-tokens", draft_tokens, 1, kMaxDrafts));
  const Result<SpeculativeConfig> config = speculation();
  if (!config) return config.error();
  if (!draft_head_rows) return {};
  if (!config->draft.enabled() || config->draft.method == DraftMethod::kSuffix)
    return Error{ErrorCode::kInvalidArgument,
                 "--draft-head-rows: is for drafters that run a model: mtp, dflash, auto"};
  const Result<DraftVocabulary> vocabulary = parse_draft_vocabulary(*draft_head_rows);
  return vocabulary ? Status() : vocabulary.error().within("--draft-head-rows");
}

ModelOptions ModelFlags::model_options() const {
  const SpeculativeConfig config = speculation().value();  // check() has seen it
  return {.model = model,
          .backend = {.device = device, .threads = static_cast<int>(threads.value_or(0))},
          .lm_head = lm_head == "int8" ? LmHead::kInt8 : LmHead::kAsStored,
          .memory = {.gpu_utilization = gpu_memory_utilization.value_or(0.9f),
                     .host_bytes = static_cast<int64_t>(1e9 * memory_gb.value_or(0))},
          .max_model_len = max_model_len.value_or(0),
          .cache_bytes = cache_bytes ? parse_bytes(*cache_bytes).value_or(0) : 0,
          .draft = config.draft,
          .drafter = config.model,
          .draft_vocabulary = draft_head_rows ? parse_draft_vocabulary(*draft_head_rows).value()
                                              : DraftVocabulary(),
          .warnings = config.warnings};
}

void SamplingFlags::declare(Flags& flags) {
  flags.group("Sampling (default: the model's generation_config.json, else no change)");
  flags.option("--temperature", "T", temperature, "Randomness; 0 always takes the likeliest token");
  flags.option("--top-p", "P", top_p, "Choose among the likeliest tokens that add up to P");
  flags.option("--top-k", "K", top_k, "Choose among the K likeliest tokens; 0 is all");
  flags.option("--min-p", "P", min_p, "Leave out tokens less likely than P times the likeliest");
  flags.option("--repetition-penalty", "R", repetition_penalty,
               "Above 1, what stands in prompt or answer becomes less likely");
  flags.option("--presence-penalty", "R", presence_penalty,
               "-2 to 2, off the logit of what stands in the answer");
  flags.option("--frequency-penalty", "R", frequency_penalty,
               "-2 to 2, the same for each time it stands there");
  flags.option("--seed", "N", seed, "Same seed, same prompt: same answer (default: a new one)");
}

Status SamplingFlags::check() const {
  TRY(check_range("top_k", top_k, -1, INT32_MAX));
  return apply({}).validate(INT64_MAX);
}

SamplingParams SamplingFlags::apply(SamplingParams params) const {
  params.temperature = temperature.value_or(params.temperature);
  params.top_p = top_p.value_or(params.top_p);
  params.min_p = min_p.value_or(params.min_p);
  params.repetition_penalty = repetition_penalty.value_or(params.repetition_penalty);
  params.presence_penalty = presence_penalty.value_or(params.presence_penalty);
  params.frequency_penalty = frequency_penalty.value_or(params.frequency_penalty);
  if (top_k) params.top_k = static_cast<int32_t>(*top_k);
  if (seed) params.seed = seed;
  return params;
}

}  // namespace pewter
