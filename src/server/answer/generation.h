// Generation: an answer in the making. It submits the choices of a request, hears their tokens on
// the connection's thread, and hands what they say to a ResponseFormat, as events while they come
// or as one body at the end. A client that goes takes the choices with it.
#pragma once

#include <deque>

#include "server/answer/choice_text.h"
#include "server/answer/served_model.h"
#include "server/http/exchange.h"

namespace pewter::server {

// A token of an answer and what was likely in its place.
struct TokenRecord {
  StreamToken token;
  std::vector<TopLogprob> top;
};

// One of the answers a request asks for.
struct Choice {
  Choice(int64_t i, size_t p, Request r, ChoiceText t)
      : index(i),
        prompt_index(p),
        reasoning_budget(r.reasoning.budget),
        request(std::move(r)),
        text(std::move(t)) {}

  int64_t index;             // in the response
  size_t prompt_index;       // which prompt it answers
  int64_t reasoning_budget;  // -1: none
  Request request;           // moved away when it is submitted
  ChoiceText text;

  // Its reasoning was closed by force: what the model closes itself is within the budget.
  bool reasoning_truncated() const {
    return reasoning_budget >= 0 && text.reasoning_tokens() > reasoning_budget;
  }

  // So far, and at the end:
  ChatMessage message;
  OutputDelta rest;                  // when streaming: what the end's event has to say before it
  std::vector<TokenRecord> records;  // only if the format wants them
  std::vector<int32_t> token_ids;    // likewise
  bool begun = false, ended = false;
  std::string_view finish_reason;        // "stop", "length" or "tool_calls", once ended
  std::optional<std::string> stop_text;  // the stop string
  std::optional<int32_t> stop_id;        // or the stop id that is not the model's own end
  std::shared_ptr<const PromptScores> prompt_scores;  // if its request asked for them
  Completion completion;
};

// What is known of a whole response.
struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, reasoning_tokens = 0;
  DraftFigures drafts;  // of the choices that have ended
};

// How an endpoint spells its answers. `out` receives complete SSE events.
class ResponseFormat {
 public:
  struct Wants {
    bool records = false, token_ids = false;
  };
  virtual ~ResponseFormat() = default;
  virtual Wants wants() const = 0;
  // Before the first token of a choice.
  virtual void begin(const Choice& choice, const Usage* usage, std::string& out) = 0;
  // A token; delta is the text it completed. usage: so far, where every event tells it.
  virtual void token(const Choice& choice, const TokenRecord& record, const OutputDelta& delta,
                     const Usage* usage, std::string& out) = 0;
  // The end of a choice; delta is the text that had been held back. `tail`: more for the event's
  // object, ",\"timings\":…" or nothing.
  virtual void end(const Choice& choice, const OutputDelta& delta, const Usage* usage,
                   const std::string& tail, std::string& out) = 0;
  virtual void usage(const Usage& usage, const std::string& tail, std::string& out) = 0;
  // After the last event: how the stream ends, or what went wrong in place of the rest. ping:
  // nothing has been sent for a while.
  virtual void finish(std::string& out);
  virtual void fail(const Error& error, std::string& out);
  virtual void ping(std::string& out);
  // Or all at once.
  virtual std::string whole(const std::deque<Choice>& choices, const Usage& usage,
                            const std::string& tail) = 0;
};

struct GenerationPlan {
  std::shared_ptr<const ServedModel> model;
  std::deque<Choice> choices;
  std::unique_ptr<ResponseFormat> format;
  int64_t prompt_tokens = 0;  // of all prompts, each once
  bool stream = false, include_usage = false, continuous_usage = false;
};

// Starts it, on the connection's thread: answers 429 or 503 when the engine does not take it.
void start_generation(const std::shared_ptr<Exchange>& exchange, GenerationPlan plan);

}  // namespace pewter::server
