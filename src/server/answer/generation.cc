#include "server/answer/generation.h"

#include <algorithm>

#include "base/clock.h"
#include "server/answer/json_pieces.h"
#include "server/sse.h"

namespace pewter::server {
namespace {

class Generation final : public Activity, public std::enable_shared_from_this<Generation> {
 public:
  Generation(std::shared_ptr<Exchange> exchange, GenerationPlan plan)
      : exchange_(std::move(exchange)), plan_(std::move(plan)), wants_(plan_.format->wants()) {}

  Status submit();
  void start_stream();
  void client_gone() override {
    exchange_->note(log_note("client gone"));
    stop();
    exchange_->abandon();
  }
  void tick(Clock::time_point now) override;

 private:
  // Looks at what choice i has to say.
  void pump(size_t i);
  void begin(const Choice& choice) {
    const Usage now = usage();
    plan_.format->begin(choice, plan_.continuous_usage ? &now : nullptr, out_);
  }
  void hear(Choice& choice, const StreamToken& token, std::span<const TopLogprob> top);
  void end_choice(size_t i, Completion completion);
  void fail(const Error& error);
  void finish();
  void flush();
  // Gives the engine everything back.
  void stop() {
    done_ = true;
    streams_.clear();
  }
  Usage usage() const;
  Timings timings() const;
  std::string log_note(std::string_view result) const;

  const std::shared_ptr<Exchange> exchange_;
  GenerationPlan plan_;
  const ResponseFormat::Wants wants_;
  std::vector<std::unique_ptr<TokenStream>> streams_;  // null: ended
  StreamNews news_;
  std::string out_;  // events not yet sent
  Clock::time_point last_sent_ = Clock::now();
  Stopwatch watch_;
  bool done_ = false;
};

Status Generation::submit() {
  for (size_t i = 0; i < plan_.choices.size(); ++i) {
    // The engine's thread must never end up as the last owner: it only posts.
    const auto on_news = [executor = exchange_->executor(), weak = weak_from_this(), i] {
      executor([weak, i] {
        if (const std::shared_ptr<Generation> self = weak.lock()) self->pump(i);
      });
    };
    TRY_ASSIGN(TokenStream stream,
               plan_.model->engine->submit(std::move(plan_.choices[i].request), on_news));
    streams_.push_back(std::make_unique<TokenStream>(std::move(stream)));
  }
  return {};
}

void Generation::start_stream() {
  exchange_->start_stream(
      {.content_type = "text/event-stream; charset=utf-8",
       .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
}

void Generation::tick(Clock::time_point now) {
  if (done_ || !plan_.stream || now - last_sent_ < plan_.model->ping_pause) return;
  plan_.format->ping(out_);
  flush();
}

void Generation::flush() {
  if (out_.empty()) return;
  last_sent_ = Clock::now();
  exchange_->send(out_);  // may find that the client is too slow, and end all this
  out_.clear();
}

void Generation::pump(size_t i) {
  if (done_ || i >= streams_.size() || !streams_[i]) return;
  Choice& choice = plan_.choices[i];
  streams_[i]->poll(news_);
  if (news_.prompt_scores) choice.prompt_scores = news_.prompt_scores;
  const auto top = news_.tokens.empty() ? 0 : news_.top_logprobs.size() / news_.tokens.size();
  for (size_t t = 0; t < news_.tokens.size() && !choice.text.is_over(); ++t)
    hear(choice, news_.tokens[t], std::span(news_.top_logprobs).subspan(t * top, top));
  if (choice.text.is_over() || news_.end) {
    Completion completion = news_.end ? *std::move(news_.end) : Completion{};
    end_choice(i, std::move(completion));
  }
  if (!done_) flush();
}

void Generation::hear(Choice& choice, const StreamToken& token, std::span<const TopLogprob> top) {
  if (plan_.stream && !choice.begun) begin(choice);
  if (!choice.begun && choice.completion.prefill_seconds == 0)
    choice.completion.prefill_seconds = watch_.seconds();
  choice.begun = true;
  if (token.is_stop && !std::ranges::binary_search(plan_.model->stop_ids, token.token))
    choice.stop_id = token.token;
  OutputDelta delta = choice.text.push(token);
  choice.message.append(delta);
  TokenRecord record{.token = token, .top = {}};
  if (wants_.records) record.top.assign(top.begin(), top.end());
  if (plan_.stream) {
    // A token that ends the sequence is told with the end, and is no text.
    if (!token.is_stop && !choice.text.stop_found()) {
      const Usage now = usage();
      plan_.format->token(choice, record, delta, plan_.continuous_usage ? &now : nullptr, out_);
    } else {
      choice.rest = std::move(delta);
      choice.records.clear();
      choice.token_ids = {token.token};
      if (!token.is_stop) choice.records.push_back(std::move(record));
    }
    return;
  }
  if (wants_.token_ids) choice.token_ids.push_back(token.token);
  if (wants_.records && !token.is_stop) choice.records.push_back(std::move(record));
}

void Generation::end_choice(size_t i, Completion completion) {
  Choice& choice = plan_.choices[i];
  streams_[i].reset();
  if (choice.text.is_over()) {
    // The engine has not ended, or ended past the stop: what counts is what was read here.
    completion.queued_seconds = 0;
    completion.prefill_seconds = choice.completion.prefill_seconds;
    completion.decode_seconds = watch_.seconds() - completion.prefill_seconds;
    completion.reason = FinishReason::kStop;
    choice.stop_text = choice.text.stop_found();
  }
  if (completion.reason == FinishReason::kError) return fail(completion.error);
  if (completion.reason == FinishReason::kCancelled)
    return fail({ErrorCode::kUnavailable, "the server is shutting down"});
  completion.completion_tokens = choice.text.tokens();
  choice.completion = std::move(completion);
  choice.ended = true;

  if (plan_.stream && !choice.begun) begin(choice);
  const OutputDelta held = choice.text.finish(
      choice.completion.reason == FinishReason::kStop && !choice.text.repeats() ? Ending::kStop
                                                                                : Ending::kLength);
  choice.message.append(held);
  choice.rest.append(held);
  choice.finish_reason = choice.text.finish_reason();
  const bool last = std::ranges::all_of(plan_.choices, &Choice::ended);
  if (plan_.stream) {
    const Usage now = usage();
    const std::string tail = last && !plan_.include_usage ? timings_member(timings()) : "";
    plan_.format->end(choice, choice.rest, plan_.continuous_usage ? &now : nullptr, tail, out_);
  }
  if (last) finish();
}

void Generation::finish() {
  std::string reasons;
  for (const Choice& choice : plan_.choices)
    if (reasons.find(choice.finish_reason) == std::string::npos)
      reasons += str_cat(reasons.empty() ? "" : "+", choice.finish_reason);
  exchange_->note(log_note(reasons));
  const std::string tail = timings_member(timings());
  stop();
  if (!plan_.stream)
    return exchange_->respond({.body = plan_.format->whole(plan_.choices, usage(), tail)});
  if (plan_.include_usage) plan_.format->usage(usage(), tail, out_);
  plan_.format->finish(out_);
  flush();
  exchange_->finish();
}

void Generation::fail(const Error& error) {
  exchange_->note(log_note(error.message));
  stop();
  if (!plan_.stream)
    return exchange_->respond(error_response(error, error_form(exchange_->request().path)));
  plan_.format->fail(error, out_);
  flush();
  exchange_->finish();
}

Usage Generation::usage() const {
  Usage usage{.prompt_tokens = plan_.prompt_tokens};
  for (const Choice& choice : plan_.choices) {
    usage.completion_tokens += choice.text.tokens();
    usage.reasoning_tokens += choice.text.reasoning_tokens();
    usage.drafts += choice.completion.drafts;
  }
  return usage;
}

Timings Generation::timings() const {
  Timings timings{.prompt_tokens = plan_.prompt_tokens};
  for (const Choice& choice : plan_.choices) {
    timings.predicted_tokens += choice.text.tokens();
    timings.prompt_seconds += choice.completion.prefill_seconds;
    timings.draft_tokens += choice.completion.drafts.draft_tokens;
    timings.accepted_tokens += choice.completion.drafts.accepted_tokens;
    timings.predicted_seconds =
        std::max(timings.predicted_seconds, choice.completion.decode_seconds);
  }
  return timings;
}

std::string Generation::log_note(std::string_view result) const {
  const Usage usage = this->usage();
  double queued = 0, prefill = 0;
  for (const Choice& choice : plan_.choices) {
    queued = std::max(queued, choice.completion.queued_seconds);
    prefill = std::max(prefill, choice.completion.prefill_seconds);
  }
  return str_cat(usage.prompt_tokens, "+", usage.completion_tokens, " tokens, queued ",
                 fixed(queued, 3), " s, first token ", fixed(queued + prefill, 3), " s, ", result);
}

}  // namespace

void ResponseFormat::finish(std::string& out) { append_sse_done(out); }

void ResponseFormat::fail(const Error& error, std::string& out) {
  append_sse_event(out, error_event_body(error));
  append_sse_done(out);
}

void ResponseFormat::ping(std::string& out) { append_sse_ping(out); }

void start_generation(const std::shared_ptr<Exchange>& exchange, GenerationPlan plan) {
  if (exchange->gone()) return exchange->abandon();  // nobody waits: never started
  const bool stream = plan.stream;
  const auto generation = std::make_shared<Generation>(exchange, std::move(plan));
  // Attached first: news may come while the later choices are being submitted, but is heard after
  // this returns.
  exchange->attach(generation);
  if (const Status status = generation->submit(); !status)
    return respond_error(exchange, status.error());
  if (stream) generation->start_stream();
}

}  // namespace pewter::server
