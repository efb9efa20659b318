#include "server/openai/completion_format.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/utf8.h"
#include "server/answer/json_pieces.h"

namespace pewter::server {
namespace {

int64_t code_points(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
}

class CompletionFormat final : public ResponseFormat {
 public:
  explicit CompletionFormat(CompletionFormatOptions options)
      : options_(std::move(options)),
        head_(response_head(response_id("cmpl-"), "text_completion", *options_.model)) {}

  Wants wants() const override {
    return {.records = options_.logprobs >= 0, .token_ids = options_.return_token_ids};
  }
  void begin(const Choice& choice, const Usage* usage, std::string& out) override {
    // With echo the prompt comes first; otherwise nothing has to be said before the first token.
    if (!options_.echo) return;
    std::string event = open(choice, options_.prompt_texts[choice.prompt_index]);
    event += ",\"logprobs\":";
    append_logprobs(event, prompt_records(choice), offsets_[choice.index]);
    event += ",\"finish_reason\":null}]";
    close_event(event, usage, "", out);
  }
  void token(const Choice& choice, const TokenRecord& record, const OutputDelta& delta,
             const Usage* usage, std::string& out) override {
    std::string event = open(choice, delta.answer);
    event += ",\"logprobs\":";
    append_logprobs(event, {record}, offsets_[choice.index]);
    event += ",\"finish_reason\":null";
    if (options_.return_token_ids) event += str_cat(",\"token_ids\":[", record.token.token, "]");
    append_prompt(event, choice);
    event += "}]";
    close_event(event, usage, "", out);
  }
  void end(const Choice& choice, const OutputDelta& delta, const Usage* usage,
           const std::string& tail, std::string& out) override {
    std::string event = open(choice, delta.answer);
    event += ",\"logprobs\":";
    append_logprobs(event, choice.records, offsets_[choice.index]);
    append_choice_end(event, choice, options_.return_token_ids);
    event += ']';
    close_event(event, usage, tail, out);
  }
  void usage(const Usage& usage, const std::string& tail, std::string& out) override {
    std::string event = head_ + "[]";
    close_event(event, &usage, tail, out);
  }
  std::string whole(const std::deque<Choice>& choices, const Usage& usage,
                    const std::string& tail) override;

 private:
  std::string open(const Choice& choice, std::string_view text) const {
    std::string event = str_cat(head_, "[{\"index\":", choice.index, ",\"text\":");
    append_json_string(event, text);
    return event;
  }
  // What is told of the prompt stands in the first event of a choice, and in whole answers.
  void append_prompt(std::string& out, const Choice& choice) {
    if (std::exchange(prompt_told_[choice.index], true)) return;
    if (options_.return_token_ids) {
      out += ",\"prompt_token_ids\":";
      append_ids(out, options_.prompt_ids[choice.prompt_index]);
    }
    if (options_.return_prompt_text) {
      out += ",\"prompt_text\":";
      append_json_string(out, options_.prompt_texts[choice.prompt_index]);
    }
    if (options_.prompt_logprobs && choice.prompt_scores) {
      out += ",\"prompt_logprobs\":";
      append_prompt_logprobs(out, *options_.model->tokenizer,
                             options_.prompt_ids[choice.prompt_index], *choice.prompt_scores);
    }
  }
  // The prompt's tokens as if they had been generated, if the request asks for them.
  std::vector<TokenRecord> prompt_records(const Choice& choice) const;
  // A token that is no whole character is spelled "bytes:\xe2\x82", as OpenAI does.
  std::string key_of(int32_t id) const;
  void append_top(std::string& out, const TokenRecord& record) const;
  void append_logprobs(std::string& out, const std::vector<TokenRecord>& records,
                       int64_t& offset) const;

  const CompletionFormatOptions options_;
  const std::string head_;              // up to the value of "choices"
  std::map<int64_t, int64_t> offsets_;  // of each choice's next token in its text
  std::map<int64_t, bool> prompt_told_;
};

std::string CompletionFormat::key_of(int32_t id) const {
  const std::string_view bytes = options_.model->tokenizer->bytes_of(id);
  if (is_valid_utf8(bytes)) return std::string(bytes);
  std::string text = "bytes:";
  for (const char byte : bytes) {
    text += "\\x";
    text += "0123456789abcdef"[(byte >> 4) & 15];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

// The likeliest tokens, and the chosen one if it is not among them.
void CompletionFormat::append_top(std::string& out, const TokenRecord& record) const {
  std::vector<TopLogprob> top = record.top;
  std::erase_if(top, [](const TopLogprob& entry) { return entry.first < 0; });
  if (std::ranges::find(top, record.token.token, &TopLogprob::first) == top.end())
    top.emplace_back(record.token.token, record.token.logprob);
  out += '{';
  for (size_t i = 0; i < top.size(); ++i) {
    if (i > 0) out += ',';
    append_json_string(out, key_of(top[i].first));
    out += ':';
    append_logprob(out, top[i].second);
  }
  out += '}';
}

std::vector<TokenRecord> CompletionFormat::prompt_records(const Choice& choice) const {
  std::vector<TokenRecord> records;
  if (!options_.echo || !choice.prompt_scores) return records;
  const PromptScores& scores = *choice.prompt_scores;
  const std::vector<int32_t>& ids = options_.prompt_ids[choice.prompt_index];
  const size_t stride = scores.tokens.empty() ? 0 : scores.top.size() / scores.tokens.size();
  const size_t top = std::min(stride, static_cast<size_t>(std::max<int64_t>(options_.logprobs, 0)));
  // Nothing stands before the first: no model has an opinion of it.
  records.push_back({.token = {.token = ids.front(), .logprob = NAN}, .top = {}});
  for (size_t i = 0; i < scores.tokens.size(); ++i) {
    const auto begin = scores.top.begin() + static_cast<int64_t>(i * stride);
    records.push_back({.token = {.token = ids[i + 1], .logprob = scores.tokens[i].logprob},
                       .top = {begin, begin + static_cast<int64_t>(top)}});
  }
  return records;
}

void CompletionFormat::append_logprobs(std::string& out, const std::vector<TokenRecord>& records,
                                       int64_t& offset) const {
  if (options_.logprobs < 0) {
    out += "null";
    return;
  }
  std::string tokens, values, tops, offsets;
  for (const TokenRecord& record : records) {
    const std::string_view comma = tokens.empty() ? "" : ",";
    for (std::string* list : {&tokens, &values, &tops, &offsets}) *list += comma;
    append_json_string(tokens, key_of(record.token.token));
    if (std::isnan(record.token.logprob)) {
      values += "null";
      tops += "null";
    } else {
      append_logprob(values, record.token.logprob);
      append_top(tops, record);
    }
    append_piece(offsets, offset);
    offset += code_points(token_text(*options_.model->tokenizer, record.token.token));
  }
  out += str_cat("{\"tokens\":[", tokens, "],\"token_logprobs\":[", values, "],\"top_logprobs\":[",
                 tops, "],\"text_offset\":[", offsets, "]}");
}

std::string CompletionFormat::whole(const std::deque<Choice>& choices, const Usage& usage,
                                    const std::string& tail) {
  std::string body = head_ + "[";
  for (const Choice& choice : choices) {
    if (choice.index > 0) body += ',';
    const std::string echo = options_.echo ? options_.prompt_texts[choice.prompt_index] : "";
    body += str_cat("{\"index\":", choice.index, ",\"text\":");
    append_json_string(body, echo + choice.message.content);
    body += ",\"logprobs\":";
    int64_t offset = 0;
    std::vector<TokenRecord> records = prompt_records(choice);
    records.insert(records.end(), choice.records.begin(), choice.records.end());
    append_logprobs(body, records, offset);
    append_prompt(body, choice);
    append_choice_end(body, choice, options_.return_token_ids);
  }
  body += "],\"usage\":";
  append_usage(body, usage);
  body += tail;
  body += '}';
  return body;
}

}  // namespace

std::unique_ptr<ResponseFormat> make_completion_format(CompletionFormatOptions options) {
  return std::make_unique<CompletionFormat>(std::move(options));
}

}  // namespace pewter::server
