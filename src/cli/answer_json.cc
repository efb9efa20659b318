#include "cli/answer_json.h"

#include <cmath>

#include "base/utf8.h"

namespace pewter {
namespace {

// JSON has no infinity; a masked token's log-probability becomes null.
Json logprob_json(float logprob) {
  return std::isfinite(logprob) ? Json(static_cast<double>(logprob)) : Json();
}

Json token_json(const Tokenizer& tokenizer, int32_t token, float logprob) {
  return Json::Object{{"id", token},
                      {"token", replace_invalid_utf8(tokenizer.bytes_of(token))},
                      {"logprob", logprob_json(logprob)}};
}

Json logprobs_json(const std::vector<TokenRecord>& tokens, const Tokenizer& tokenizer) {
  Json::Array list;
  for (const TokenRecord& record : tokens) {
    Json entry = token_json(tokenizer, record.token, record.logprob);
    Json::Array top;
    for (const auto& [token, logprob] : record.top)
      top.push_back(token_json(tokenizer, token, logprob));
    entry.set("top", std::move(top));
    list.push_back(std::move(entry));
  }
  return list;
}

// Seeds fill 64 bits.
Json seed_json(uint64_t seed) {
  if (seed <= INT64_MAX) return static_cast<int64_t>(seed);
  return Json::BigInteger{str_cat(seed)};
}

Json drafts_json(const DraftFigures& drafts) {
  Json::Array accepted;
  for (const int64_t count : drafts.accepted_at) {
    if (count == 0) break;  // nor at any later position
    accepted.emplace_back(count);
  }
  Json json(Json::Object{});
  json.set("drafts", drafts.drafts);
  json.set("draft_tokens", drafts.draft_tokens);
  json.set("accepted_tokens", drafts.accepted_tokens);
  json.set("accepted_per_position", std::move(accepted));
  json.set("mean_acceptance_length", drafts.mean_acceptance_length());
  return json;
}

}  // namespace

Json answer_json(const Answer& answer, const Tokenizer& tokenizer, double load_seconds) {
  const Completion& completion = answer.completion;
  Json json(Json::Object{});
  json.set("text", answer.text);
  json.set("reasoning", answer.reasoning.empty() ? Json() : Json(answer.reasoning));
  if (!answer.raw.empty()) json.set("raw", answer.raw);
  json.set("finish_reason", finish_reason_name(completion.reason));
  json.set("prompt_tokens", completion.prompt_tokens);
  json.set("completion_tokens", completion.completion_tokens);
  json.set("reasoning_tokens", answer.reasoning_tokens);
  json.set("seed", seed_json(completion.seed));
  json.set("load_seconds", load_seconds);
  json.set("prefill_seconds", completion.prefill_seconds);
  json.set("decode_seconds", completion.decode_seconds);
  json.set("prefill_tokens_per_second", prefill_rate(completion));
  json.set("decode_tokens_per_second", decode_rate(completion));
  if (completion.drafts.drafts > 0) json.set("drafts", drafts_json(completion.drafts));
  if (!answer.tokens.empty()) json.set("logprobs", logprobs_json(answer.tokens, tokenizer));
  return json;
}

}  // namespace pewter
