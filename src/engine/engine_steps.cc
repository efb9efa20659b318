// The engine's steps: reading a prompt's chunk, decoding a row and its drafts for every sequence,
// choosing tokens, and drafting for the next step.
#include <algorithm>
#include <utility>

#include "engine/engine_job.h"

namespace pewter {

void Engine::prefill(const StepPlan& plan) {
  Job& job = this->job(plan.prefill);
  const std::span<const int32_t> prompt(job.request.prompt);
  const bool whole = plan.end == job.completion.prompt_tokens;
  runner_->prefill({.sequence = &job.sequence,
                    .tokens = prompt.subspan(static_cast<size_t>(plan.begin),
                                             static_cast<size_t>(plan.end - plan.begin)),
                    .logits = whole ? LogitsWanted::kLast : LogitsWanted::kNone});
  prompt_tokens_ += plan.end - plan.begin;
  job.channel->progress(plan.end);
  if (job.request.prompt_logprobs >= 0) score_prompt(job, plan.begin, plan.end);
  if (whole) {
    step_jobs_.assign(1, &job);
    start_choosing();
    publish(job, sampler_->finish().front());
  }
  after_prefill_ = true;
  if (!speculator_ || job.ended) return;
  speculator_->read(job.sequence, prompt, plan.begin);
  if (!whole) return;
  want_draft(job, plan.end - plan.begin - 1, 1);
  draft(std::ranges::count_if(
            jobs_, [&](const auto& other) { return !other->next.empty() && !other->ended; }) -
        1);
}

void Engine::score_prompt(Job& job, int64_t begin, int64_t end) {
  const std::span<const int32_t> prompt(job.request.prompt);
  const auto top = static_cast<size_t>(job.request.prompt_logprobs);
  PromptScores& scores = *job.scores;
  // The last token of a prompt has none behind it.
  const int64_t last = std::min(end, std::ssize(prompt) - 1);
  for (int64_t at = begin; at < last;) {
    const int64_t next = std::min(at + runner_->most_logits(), last);
    runner_->chunk_logits(at - begin, next - begin);
    const auto said = prompt.subspan(static_cast<size_t>(at) + 1, static_cast<size_t>(next - at));
    const std::span<const StepSampler::Choice> choices = sampler_->score(runner_->logits(), said);
    for (size_t i = 0; i < said.size(); ++i) {
      const std::span<const TopLogprob> likeliest = choices[i].top;
      const auto place = std::ranges::find(likeliest, said[i], &TopLogprob::first);
      scores.tokens.push_back({.logprob = choices[i].logprob,
                               .rank = place == likeliest.end()
                                           ? 0
                                           : static_cast<int32_t>(place - likeliest.begin()) + 1});
      scores.top.insert(scores.top.end(), likeliest.begin(),
                        likeliest.begin() + static_cast<int64_t>(top));
    }
    at = next;
  }
  if (end < std::ssize(prompt)) return;
  job.channel->scored(std::move(job.scores));
  runner_->chunk_logits(end - begin - 1, end - begin);
}

void Engine::start_decode(const StepPlan& plan) {
  step_jobs_.clear();
  for (const int64_t id : plan.decode) step_jobs_.push_back(&job(id));
  step_begin_ = speculator_ ? speculator_->now() : 0;
  decode_step_jobs();
  start_choosing();
}

void Engine::decode_step_jobs() {
  step_rows_.clear();
  for (Job* job : step_jobs_)
    step_rows_.push_back(
        {.sequence = &job->sequence, .tokens = job->next, .logits = LogitsWanted::kAll});
  runner_->decode(step_rows_);
}

void Engine::finish_decode() {
  ahead_ = can_go_ahead();
  if (ahead_) go_ahead();
  std::span<const StepSampler::Choice> choices = sampler_->finish();
  int64_t first_row = 0;
  const int64_t sequences = std::ssize(step_jobs_);
  for (size_t i = 0; i < step_jobs_.size(); ++i) {
    Job* const job = step_jobs_[i];
    const int64_t drafted = std::ssize(step_rows_[i].tokens) - 1;
    if (job == nullptr) {  // it ended while a step of it was ahead
      choices = choices.subspan(static_cast<size_t>(1 + drafted));
      first_row += 1 + drafted;
      continue;
    }
    const int64_t offered = drafts_before_stop(*job);
    const int64_t rows = agreed_rows(job->drafts().first(static_cast<size_t>(offered)), choices);
    if (!ahead_) runner_->accept(job->sequence, rows);
    if (speculator_) speculator_->judged(job->sequence, offered, rows - 1);
    draft_figures_.add(offered, rows - 1);
    job->completion.drafts.add(offered, rows - 1);
    for (const StepSampler::Choice& choice : choices.first(static_cast<size_t>(rows)))
      publish(*job, choice);
    want_draft(*job, first_row, rows);
    choices = choices.subspan(static_cast<size_t>(1 + drafted));
    first_row += 1 + drafted;
  }
  // A step that waits for a prompt's chunk does not say what a step takes.
  if (!speculator_) return;
  if (!std::exchange(after_prefill_, false))
    speculator_->stepped(sequences, first_row - sequences, speculator_->now() - step_begin_);
  draft(std::ranges::count_if(step_jobs_,
                              [](const Job* job) { return job != nullptr && !job->ended; }) -
        std::ssize(draft_jobs_));
}

// When nothing that the next step needs depends on this one's choices but its tokens, and the same
// sequences go on. A stop token is heard of too late: its row of the step ahead is lost.
bool Engine::can_go_ahead() const {
  return may_go_ahead_ && !speculator_ && scheduler_->only_decodes() &&
         std::ranges::all_of(step_jobs_, [](const Job* job) {
           return job != nullptr && !job->ended && !job->matcher && job->allowed.empty() &&
                  job->sampler->is_settled() && job->sampler->generated() + 1 < job->max_tokens;
         });
}

// Without drafts a step's rows count, whatever is chosen behind them.
void Engine::go_ahead() {
  for (size_t i = 0; i < step_jobs_.size(); ++i) {
    runner_->accept(step_jobs_[i]->sequence, 1);
    step_rows_[i].tokens = std::span(ahead_tokens_).subspan(i, 1);
  }
  runner_->decode(step_rows_);
  start_choosing(/*ahead=*/true);
}

// When the sequences of the last step are all that the next one has, and nobody's guesses have to
// be looked at before they are verified.
bool Engine::can_verify_ahead() const {
  const auto goes_on = [](const Job* job) { return job != nullptr && !job->ended; };
  return may_go_ahead_ && scheduler_->only_decodes() &&
         std::ranges::count_if(step_jobs_, goes_on) == scheduler_->running() &&
         std::ranges::none_of(
             step_jobs_, [&](const Job* job) { return goes_on(job) && job->matcher != nullptr; });
}

void Engine::verify_ahead() {
  std::erase_if(step_jobs_, [](const Job* job) { return job == nullptr || job->ended; });
  decode_step_jobs();
}

void Engine::start_choosing(bool ahead) {
  sampled_rows_.clear();
  for (Job* job : step_jobs_)
    sampled_rows_.push_back({.sampler = &*job->sampler,
                             .drafts = job->drafts(),
                             .matcher = job->matcher.get(),
                             .stop_ids = job->request.stop_ids,
                             .allowed = job->allowed,
                             .ahead = ahead});
  sampler_->start(runner_->logits(), sampled_rows_);
}

int64_t Engine::agreed_rows(std::span<const int32_t> drafts,
                            std::span<const StepSampler::Choice> choices) {
  size_t row = 0;
  while (row < drafts.size() && choices[row].token == drafts[row]) ++row;
  return static_cast<int64_t>(row) + 1;
}

// Those that count: after a stop nothing is said. In a step that was enqueued before its guesses
// were heard there may be others.
int64_t Engine::drafts_before_stop(const Job& job) {
  const std::span<const int32_t> drafts = job.drafts();
  const auto stops = [&job](int32_t token) { return ends_at(job, token); };
  return std::ranges::find_if(drafts, stops) - drafts.begin();
}

bool Engine::ends_at(const Job& job, int32_t token) {
  const std::vector<int32_t>& stops = job.request.stop_ids;
  return std::find(stops.begin(), stops.end(), token) != stops.end();
}

Error Engine::nothing_to_choose(const Job& job) {
  const Request& request = job.request;
  if (request.allowed_ids.empty() && request.banned.empty())
    return {ErrorCode::kInternal, "the model's logits are not finite, or every token is masked"};
  return {ErrorCode::kInvalidArgument,
          str_cat(request.allowed_ids.empty() ? "bad_words" : "allowed_token_ids",
                  ": it leaves no token to go on with after ", job.sampler->generated(), " tokens",
                  request.grammar ? ", beside the form that is asked for" : "")};
}

void Engine::publish(Job& job, const StepSampler::Choice& choice) {
  if (choice.token < 0) {
    job.completion.error = nothing_to_choose(job);
    return finish(job, FinishReason::kError);
  }
  job.next.assign(1, choice.token);
  if (speculator_) job.text.push_back(choice.token);
  job.sampler->push(choice.token);
  job.completion.completion_tokens = job.sampler->generated();
  ++completion_tokens_;
  if (job.sampler->generated() == 1) {
    job.completion.prefill_seconds = job.phase.seconds();
    job.phase.restart();
  }
  const bool is_stop = ends_at(job, choice.token);
  job.channel->push({.token = choice.token, .is_stop = is_stop, .logprob = choice.logprob},
                    choice.top.first(static_cast<size_t>(job.request.top_logprobs)));
  if (!is_stop && job.matcher && !follow_grammar(job, choice.token)) return;
  if (is_stop)
    finish(job, FinishReason::kStop);
  else if (job.sampler->generated() == job.max_tokens)
    finish(job, FinishReason::kLength);
}

bool Engine::follow_grammar(Job& job, int32_t token) {
  if (!job.matcher->push(token)) {
    job.completion.error = {ErrorCode::kInternal,
                            "the text can be read in more ways than the grammar's limit allows"};
    finish(job, FinishReason::kError);
    return false;
  }
  job.matcher->commit();
  if (!job.matcher->is_finished()) return true;
  finish(job, FinishReason::kStop);
  return false;
}

void Engine::want_draft(Job& job, int64_t first_row, int64_t rows) {
  if (!speculator_ || job.ended) return;
  // A step says one token more than its drafts, and no more than may be said.
  const int64_t most =
      std::min(options_.draft.tokens, job.max_tokens - job.sampler->generated() - 1);
  if (most <= 0) return;  // nor ever again
  draft_jobs_.push_back(&job);
  draft_sequences_.push_back({.state = &job.sequence,
                              .tokens = job.text,
                              .first_row = first_row,
                              .rows = rows,
                              .most = most,
                              .drafts = &job.next});
}

size_t Engine::readable_drafts(Job& job) {
  grammar::Matcher& matcher = *job.matcher;
  int64_t pushed = 0;
  size_t readable = 0;
  for (const int32_t token : job.drafts()) {
    if (!matcher.push(token)) break;
    ++pushed;
    if (matcher.is_finished()) break;
    ++readable;
  }
  matcher.pop(pushed);
  return readable;
}

// After a stop nothing is said, and the row before it chooses the stop itself.
void Engine::drop_unreadable() {
  for (Job* job : draft_jobs_) {
    std::vector<int32_t>& next = job->next;
    next.resize(1 + static_cast<size_t>(drafts_before_stop(*job)));
    if (job->matcher) next.resize(1 + readable_drafts(*job));
  }
}

void Engine::draft(int64_t others) {
  if (draft_sequences_.empty()) return;
  ahead_ = speculator_->start(draft_sequences_, others) && can_verify_ahead();
  if (ahead_) verify_ahead();
  speculator_->finish(/*all=*/ahead_);
  if (ahead_) {
    step_begin_ = speculator_->now();
    start_choosing();
  } else {
    drop_unreadable();
  }
  draft_jobs_.clear();
  draft_sequences_.clear();
}

}  // namespace pewter
