#include "server/request/generation_fields.h"

#include <algorithm>
#include <charconv>

#include "backend/ops.h"

namespace pewter::server {
namespace {

constexpr size_t kLongestStop = 4096, kMostBadWords = 1024;

Status read_stream_options(Fields& fields, GenerationFields& into) {
  const Json* options = fields.take("stream_options");
  if (options == nullptr) return {};
  if (!into.stream) return bad_request("stream_options: only meant for requests with stream: true");
  TRY_ASSIGN(Fields inner, Fields::of(*options, "stream_options"));
  TRY(inner.read("include_usage", into.include_usage));
  TRY(inner.read("continuous_usage_stats", into.continuous_usage));
  return {};
}

Status read_stops(Fields& fields, GenerationFields& into) {
  TRY(fields.read_strings("stop", into.stops, kMostStops));
  std::erase(into.stops, "");  // agents send empty ones; they would match everywhere
  for (const std::string& stop : into.stops)
    if (stop.size() > kLongestStop)
      return bad_request(str_cat("stop: a string is longer than ", kLongestStop, " bytes"));
  TRY(fields.read_ids("stop_token_ids", into.stop_ids));
  return fields.read("include_stop_str_in_output", into.include_stop);
}

// {"token id": bias}
Status read_logit_bias(Fields& fields, SamplingParams& sampling) {
  const Json* biases = fields.take("logit_bias");
  if (biases == nullptr) return {};
  if (!biases->is_object())
    return bad_request(str_cat("logit_bias: want an object, not ", kind_name(*biases)));
  for (const auto& [key, bias] : biases->as_object()) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0)
      return bad_request(str_cat("logit_bias: the key ", safe_quote(key), " is no token id"));
    if (!bias.is_number()) return bad_request("logit_bias: want a number for every token id");
    const double value = bias.as_double();
    if (!(value >= -100 && value <= 100))
      return bad_request(
          str_cat("logit_bias: the number of token ", id, " is outside [-100, 100]"));
    sampling.logit_bias.emplace_back(id, static_cast<float>(value));
  }
  return {};
}

// What may be said at all.
Status read_choice_of_tokens(Fields& fields, GenerationFields& into) {
  TRY(fields.read_strings("bad_words", into.bad_words, kMostBadWords));
  for (const std::string& word : into.bad_words)
    if (word.empty() || word.size() > kLongestStop)
      return bad_request(
          str_cat("bad_words: want strings of 1 to ", kLongestStop, " bytes, without empty ones"));
  if (const Json* ids = fields.take("allowed_token_ids")) {
    TRY(fields.read_ids("allowed_token_ids", into.allowed_ids));
    if (ids->is_array() && into.allowed_ids.empty())
      return bad_request("allowed_token_ids: an empty list leaves nothing to say");
  }
  return {};
}

Status read_repetition(Fields& fields, GenerationFields& into) {
  const Json* limit = fields.take("repetition_detection");
  if (limit == nullptr) return {};
  TRY_ASSIGN(Fields inner, Fields::of(*limit, "repetition_detection"));
  constexpr int64_t kMost = 1024;
  RepetitionLimit read;
  TRY(inner.read("max_pattern_size", read.longest, {.least = 0, .most = kMost}));
  TRY(inner.read("min_pattern_size", read.shortest, {.least = 0, .most = kMost}));
  TRY(inner.read("min_count", read.count, {.least = 0, .most = kMost}));
  if (read.longest == 0) return {};
  read.shortest = std::max<int64_t>(read.shortest, 1);
  if (read.count < 2) return bad_request("repetition_detection.min_count: want 2 or more");
  if (read.shortest > read.longest)
    return bad_request("repetition_detection.min_pattern_size: it is more than max_pattern_size");
  into.repetition = read;
  return {};
}

Status read_sampling(Fields& fields, SamplingParams& sampling) {
  TRY(fields.read("repeat_penalty", sampling.repetition_penalty));  // llama.cpp's name
  std::optional<int64_t> seed;
  TRY(fields.read("seed", seed, {}));
  if (seed && *seed != -1) sampling.seed = static_cast<uint64_t>(*seed);  // -1: llama.cpp's "any"
  TRY(read_logit_bias(fields, sampling));
  return read_sampling_defaults(fields, sampling);
}

}  // namespace

Status read_sampling_defaults(Fields& fields, SamplingParams& sampling) {
  TRY(fields.read("temperature", sampling.temperature));
  TRY(fields.read("top_p", sampling.top_p));
  TRY(fields.read("min_p", sampling.min_p));
  TRY(fields.read("repetition_penalty", sampling.repetition_penalty));
  TRY(fields.read("presence_penalty", sampling.presence_penalty));
  TRY(fields.read("frequency_penalty", sampling.frequency_penalty));
  int64_t top_k = sampling.top_k;
  TRY(fields.read("top_k", top_k, {.least = -1, .most = INT32_MAX}));
  sampling.top_k = static_cast<int32_t>(top_k);
  return sampling.validate(INT64_MAX);
}

Status read_generation(Fields& fields, const SamplingParams& defaults, GenerationFields& into) {
  TRY(fields.read("model", into.model));
  TRY(fields.read("stream", into.stream));
  TRY(read_stream_options(fields, into));
  TRY(fields.read("n", into.n, {.least = 1, .most = kMostChoices}));
  into.sampling = defaults;
  TRY(read_sampling(fields, into.sampling));
  // Later names win: n_predict is llama.cpp's, max_completion_tokens the newer one of OpenAI's.
  std::optional<int64_t> predict;
  TRY(fields.read("n_predict", predict, {.least = -1}));
  if (predict && *predict > 0) into.max_tokens = predict;
  TRY(fields.read("max_tokens", into.max_tokens, {.least = 1}));
  TRY(fields.read("max_completion_tokens", into.max_tokens, {.least = 1}));
  TRY(fields.read("min_tokens", into.min_tokens, {.least = 0}));
  if (into.max_tokens && into.min_tokens > *into.max_tokens)
    return bad_request(
        str_cat("min_tokens: ", into.min_tokens, " is more than max_tokens, ", *into.max_tokens));
  TRY(fields.read("ignore_eos", into.ignore_eos));
  TRY(read_stops(fields, into));
  TRY(fields.read("skip_special_tokens", into.skip_special));
  TRY(fields.read("return_token_ids", into.return_token_ids));
  TRY(read_choice_of_tokens(fields, into));
  TRY(fields.read("truncate_prompt_tokens", into.truncate_prompt,
                  {.least = -1, .most = INT32_MAX}));
  if (into.truncate_prompt == 0)
    return bad_request("truncate_prompt_tokens: want 1 or more, or -1");
  TRY(fields.refuse({"logits_processors", "use_beam_search", "kv_transfer_params"}));
  fields.ignore({"spaces_between_special_tokens", "user", "metadata", "store", "service_tier",
                 "documents", "cache_prompt", "cache_salt", "priority", "request_id", "id_slot",
                 "timings_per_token", "safety_identifier", "prompt_cache_key", "verbosity"});
  if (const Json* format = fields.take("response_format"))
    TRY(read_output_format(*format, "response_format", into.format));
  return read_structured_outputs(fields, into.format);
}

Status read_reports(Fields& fields, GenerationFields& into) {
  TRY(fields.read("return_prompt_text", into.return_prompt_text));
  std::optional<int64_t> prompt;
  TRY(fields.read("prompt_logprobs", prompt, {.least = 0, .most = kTopLogprobs}));
  into.prompt_logprobs = prompt.value_or(-1);
  if (prompt && into.stream)
    return bad_request("prompt_logprobs: only meant for requests without stream");
  return read_repetition(fields, into);
}

Status refuse_reports(Fields& fields) {
  return fields.refuse({"return_prompt_text", "prompt_logprobs", "repetition_detection"});
}

}  // namespace pewter::server
