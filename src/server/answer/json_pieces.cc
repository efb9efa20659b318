#include "server/answer/json_pieces.h"

#include <cmath>
#include <ctime>
#include <random>

#include "base/utf8.h"
#include "server/answer/generation.h"
#include "server/sse.h"

namespace pewter::server {
namespace {

double rate(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

double each(double seconds, int64_t count) {
  return count > 0 ? 1000 * seconds / static_cast<double>(count) : 0;
}

}  // namespace

void append_usage(std::string& out, const Usage& usage) {
  out += str_cat("{\"prompt_tokens\":", usage.prompt_tokens,
                 ",\"completion_tokens\":", usage.completion_tokens,
                 ",\"total_tokens\":", usage.prompt_tokens + usage.completion_tokens,
                 ",\"prompt_tokens_details\":{\"cached_tokens\":0}",
                 ",\"completion_tokens_details\":{\"reasoning_tokens\":", usage.reasoning_tokens);
  const DraftFigures& drafts = usage.drafts;
  if (drafts.draft_tokens > 0)
    out +=
        str_cat(",\"accepted_prediction_tokens\":", drafts.accepted_tokens,
                ",\"rejected_prediction_tokens\":", drafts.draft_tokens - drafts.accepted_tokens);
  out += "}}";
}

std::string timings_member(const Timings& t) {
  return str_cat(
      ",\"timings\":{\"cache_n\":0,\"prompt_n\":", t.prompt_tokens,
      ",\"prompt_ms\":", fixed(1000 * t.prompt_seconds, 3),
      ",\"prompt_per_token_ms\":", fixed(each(t.prompt_seconds, t.prompt_tokens), 3),
      ",\"prompt_per_second\":", fixed(rate(t.prompt_tokens, t.prompt_seconds), 3),
      ",\"predicted_n\":", t.predicted_tokens,
      ",\"predicted_ms\":", fixed(1000 * t.predicted_seconds, 3),
      ",\"predicted_per_token_ms\":", fixed(each(t.predicted_seconds, t.predicted_tokens), 3),
      ",\"predicted_per_second\":", fixed(rate(t.predicted_tokens, t.predicted_seconds), 3),
      t.draft_tokens > 0
          ? str_cat(",\"draft_n\":", t.draft_tokens, ",\"draft_n_accepted\":", t.accepted_tokens)
          : "",
      "}");
}

void append_logprob(std::string& out, float logprob) {
  constexpr float kLeast = -9999;
  append_piece(out, std::isfinite(logprob) ? logprob : kLeast);
}

std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  return replace_invalid_utf8(tokenizer.bytes_of(id));
}

void append_prompt_logprobs(std::string& out, const Tokenizer& tokenizer,
                            const std::vector<int32_t>& prompt, const PromptScores& scores) {
  out += "[null";
  const size_t top = scores.tokens.empty() ? 0 : scores.top.size() / scores.tokens.size();
  for (size_t i = 0; i < scores.tokens.size(); ++i) {
    const auto append = [&](int32_t id, float logprob, int64_t rank) {
      out += str_cat("\"", id, "\":{\"logprob\":");
      append_logprob(out, logprob);
      out += str_cat(",\"rank\":", rank > 0 ? str_cat(rank) : "null", ",\"decoded_token\":");
      append_json_string(out, token_text(tokenizer, id));
      out += '}';
    };
    const int32_t said = prompt[i + 1];
    out += ",{";
    append(said, scores.tokens[i].logprob, scores.tokens[i].rank);
    for (size_t j = 0; j < top; ++j) {
      const auto& [id, logprob] = scores.top[i * top + j];
      if (id < 0 || id == said) continue;
      out += ',';
      append(id, logprob, static_cast<int64_t>(j) + 1);
    }
    out += '}';
  }
  out += ']';
}

void append_ids(std::string& out, const std::vector<int32_t>& ids) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    append_piece(out, ids[i]);
  }
  out += ']';
}

std::string response_id(std::string_view prefix) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id(prefix);
  for (int word = 0; word < 2; ++word)
    for (uint64_t bits = random(), i = 0; i < 12; ++i, bits >>= 4)
      id += "0123456789abcdef"[bits & 15];
  return id;
}

std::string response_head(std::string_view id, std::string_view object, const ServedModel& model) {
  std::string text =
      str_cat("{\"id\":\"", id, "\",\"object\":\"", object,
              "\",\"created\":", static_cast<int64_t>(std::time(nullptr)), ",\"model\":");
  append_json_string(text, model.name());
  text += ",\"system_fingerprint\":";
  append_json_string(text, model.fingerprint);
  text += ",\"choices\":";
  return text;
}

void append_choice_end(std::string& out, const Choice& choice, bool with_token_ids) {
  out += ",\"finish_reason\":\"";
  out += choice.finish_reason;
  out += "\",\"stop_reason\":";
  if (choice.text.repeats())
    out += "\"repetition_detected\"";
  else if (choice.stop_text)
    append_json_string(out, *choice.stop_text);
  else if (choice.stop_id)
    append_piece(out, *choice.stop_id);
  else
    out += "null";
  if (choice.reasoning_truncated()) out += ",\"reasoning_truncated\":true";
  if (with_token_ids) {
    out += ",\"token_ids\":";
    append_ids(out, choice.token_ids);
  }
  out += '}';
}

void close_event(std::string& event, const Usage* usage, std::string_view tail, std::string& out) {
  if (usage != nullptr) {
    event += ",\"usage\":";
    append_usage(event, *usage);
  }
  event += tail;
  event += '}';
  append_sse_event(out, event);
}

}  // namespace pewter::server
