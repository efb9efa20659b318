#include "server/openai/chat_format.h"

#include "server/answer/json_pieces.h"

namespace pewter::server {
namespace {

class ChatFormat final : public ResponseFormat {
 public:
  explicit ChatFormat(ChatFormatOptions options)
      : options_(std::move(options)),
        field_(options_.include_reasoning ? std::optional(options_.model->reasoning_field)
                                          : std::nullopt),
        id_(response_id("chatcmpl-")),
        head_(response_head(id_, "chat.completion.chunk", *options_.model)),
        whole_head_(response_head(id_, "chat.completion", *options_.model)) {}

  Wants wants() const override {
    return {.records = options_.logprobs, .token_ids = options_.return_token_ids};
  }
  void begin(const Choice& choice, const Usage* usage, std::string& out) override;
  void token(const Choice& choice, const TokenRecord& record, const OutputDelta& delta,
             const Usage* usage, std::string& out) override;
  void end(const Choice& choice, const OutputDelta& delta, const Usage* usage,
           const std::string& tail, std::string& out) override;
  void usage(const Usage& usage, const std::string& tail, std::string& out) override;
  std::string whole(const std::deque<Choice>& choices, const Usage& usage,
                    const std::string& tail) override;

 private:
  void append_one_logprob(std::string& out, int32_t id, float logprob) const;
  void append_logprobs(std::string& out, const std::vector<TokenRecord>& records) const;
  void append_prompt(std::string& out) const {
    if (options_.return_token_ids) {
      out += ",\"prompt_token_ids\":";
      append_ids(out, options_.prompt_ids);
    }
    if (options_.prompt_text) {
      out += ",\"prompt_text\":";
      append_json_string(out, *options_.prompt_text);
    }
  }
  // Opens a chunk with one choice up to its delta's value.
  std::string open(const Choice& choice) const {
    return str_cat(head_, "[{\"index\":", choice.index, ",\"delta\":");
  }
  void add_delta(std::string& event, const Choice& choice, const OutputDelta& delta) const {
    append_delta(event, delta, choice.message.calls, choice.text.in_reasoning(), field_);
  }

  const ChatFormatOptions options_;
  const std::optional<ReasoningField> field_;  // none: reasoning is left out
  const std::string id_, head_, whole_head_;   // up to the value of "choices"
  bool prompt_told_ = false;
};

void ChatFormat::append_one_logprob(std::string& out, int32_t id, float logprob) const {
  const Tokenizer& tokenizer = *options_.model->tokenizer;
  out += "{\"token\":";
  append_json_string(out, token_text(tokenizer, id));
  out += ",\"logprob\":";
  append_logprob(out, logprob);
  out += ",\"bytes\":[";
  bool first = true;
  for (const char byte : tokenizer.bytes_of(id)) {
    if (!first) out += ',';
    first = false;
    append_piece(out, static_cast<int>(static_cast<unsigned char>(byte)));
  }
  out += ']';
}

void ChatFormat::append_logprobs(std::string& out, const std::vector<TokenRecord>& records) const {
  if (!options_.logprobs || records.empty()) {
    out += "null";
    return;
  }
  out += "{\"content\":[";
  for (size_t i = 0; i < records.size(); ++i) {
    if (i > 0) out += ',';
    append_one_logprob(out, records[i].token.token, records[i].token.logprob);
    out += ",\"top_logprobs\":[";
    bool first = true;
    for (const auto& [id, logprob] : records[i].top) {
      if (id < 0) continue;
      if (!first) out += ',';
      first = false;
      append_one_logprob(out, id, logprob);
      out += '}';
    }
    out += "]}";
  }
  out += "]}";
}

void ChatFormat::begin(const Choice& choice, const Usage* usage, std::string& out) {
  std::string event = open(choice);
  event += "{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]";
  if (!prompt_told_) append_prompt(event);
  prompt_told_ = true;
  close_event(event, usage, "", out);
  if (options_.echo.empty()) return;
  event = open(choice);
  add_delta(event, choice, {.answer = options_.echo});
  event += ",\"logprobs\":null,\"finish_reason\":null}]";
  close_event(event, usage, "", out);
}

void ChatFormat::token(const Choice& choice, const TokenRecord& record, const OutputDelta& delta,
                       const Usage* usage, std::string& out) {
  std::string event = open(choice);
  add_delta(event, choice, delta);
  event += ",\"logprobs\":";
  if (options_.logprobs)
    append_logprobs(event, {record});
  else
    event += "null";
  event += ",\"finish_reason\":null";
  if (options_.return_token_ids) event += str_cat(",\"token_ids\":[", record.token.token, "]");
  event += "}]";
  close_event(event, usage, "", out);
}

void ChatFormat::end(const Choice& choice, const OutputDelta& delta, const Usage* usage,
                     const std::string& tail, std::string& out) {
  std::string event = open(choice);
  // Text that was held back, or the token of a stop string, has an event before the end's.
  const bool shown =
      !delta.answer.empty() || !delta.calls.empty() || (field_ && !delta.reasoning.empty());
  if (shown || (options_.logprobs && !choice.records.empty())) {
    add_delta(event, choice, delta);
    event += ",\"logprobs\":";
    append_logprobs(event, choice.records);
    event += ",\"finish_reason\":null}]";
    close_event(event, usage, "", out);
    event = open(choice);
  }
  event += "{},\"logprobs\":null";
  append_choice_end(event, choice, options_.return_token_ids);
  event += ']';
  close_event(event, usage, tail, out);
}

void ChatFormat::usage(const Usage& usage, const std::string& tail, std::string& out) {
  std::string event = head_ + "[]";
  close_event(event, &usage, tail, out);
}

std::string ChatFormat::whole(const std::deque<Choice>& choices, const Usage& usage,
                              const std::string& tail) {
  std::string body = whole_head_ + "[";
  for (const Choice& choice : choices) {
    if (choice.index > 0) body += ',';
    body += str_cat("{\"index\":", choice.index, ",\"message\":");
    if (options_.echo.empty()) {
      append_message(body, choice.message, choice.text.in_reasoning(), field_);
    } else {
      ChatMessage message = choice.message;
      message.content.insert(0, options_.echo);
      append_message(body, message, choice.text.in_reasoning(), field_);
    }
    body += ",\"logprobs\":";
    append_logprobs(body, choice.records);
    append_choice_end(body, choice, options_.return_token_ids);
  }
  body += "],\"usage\":";
  append_usage(body, usage);
  append_prompt(body);
  if (choices.front().prompt_scores) {
    body += ",\"prompt_logprobs\":";
    append_prompt_logprobs(body, *options_.model->tokenizer, options_.prompt_ids,
                           *choices.front().prompt_scores);
  }
  body += tail;
  body += '}';
  return body;
}

}  // namespace

std::unique_ptr<ResponseFormat> make_chat_format(ChatFormatOptions options) {
  return std::make_unique<ChatFormat>(std::move(options));
}

}  // namespace pewter::server
