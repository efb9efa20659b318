#include "engine/engine.h"

#include <algorithm>
#include <random>

#include "engine/engine_job.h"

namespace pewter {
namespace {

uint64_t random_seed() {
  std::random_device entropy;
  return (static_cast<uint64_t>(entropy()) << 32) ^ entropy();
}

}  // namespace

Engine::Engine(const Qwen35Model& model) : model_(model) {}

Result<std::unique_ptr<Engine>> Engine::make(const Qwen35Model& model, Device& device, Ops& ops,
                                             const EngineOptions& options) {
  const int64_t vocab = model.config.vocab_size, words = (vocab + 31) / 32;
  if (options.vocab_limit < 0 || options.vocab_limit > vocab)
    return Error{ErrorCode::kInvalidArgument, str_cat("vocab_limit: ", options.vocab_limit,
                                                      " is outside the vocabulary of ", vocab)};
  const auto mask_words = static_cast<int64_t>(options.token_mask.size());
  if (mask_words != 0 && mask_words != words)
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("token_mask: ", mask_words, " words, want ", words)};
  std::unique_ptr<Engine> engine(new Engine(model));
  engine->options_ = options;
  TRY(options.draft.validate());
  DraftOptions& draft = engine->options_.draft;
  RunnerOptions& runner = engine->options_.runner;
  if (options.dflash) {
    TRY(options.dflash->config.check_target(model.config));
    draft.tokens = std::min(draft.tokens, options.dflash->config.most_drafts());
    runner.beside = DflashModel::limits(options.dflash->config);
  }
  runner.decode_rows = std::max(runner.decode_rows, draft.decode_rows());
  TRY_ASSIGN(engine->runner_, ModelRunner::make(model, device, ops, runner));
  TRY(engine->make_speculator(device, ops));
  const int64_t sequences = runner.max_sequences;
  TRY_ASSIGN(
      StepSampler sampler,
      StepSampler::make(device, ops,
                        {.rows = sequences * draft.decode_rows(),
                         .vocab_limit = options.vocab_limit > 0 ? options.vocab_limit : vocab,
                         .mask_words = words,
                         .token_mask = options.token_mask}));
  engine->sampler_ = std::make_unique<StepSampler>(std::move(sampler));
  engine->scheduler_ = std::make_unique<Scheduler>(runner.chunk_rows);
  const int64_t fits = std::min(runner.cache_tokens, model.config.max_positions);
  engine->max_context_ = options.max_context > 0 ? std::min(options.max_context, fits) : fits;
  const auto most = static_cast<size_t>(sequences);
  engine->step_jobs_.reserve(most);
  engine->step_rows_.reserve(most);
  engine->sampled_rows_.reserve(most);
  const Speculator* const speculator = engine->speculator_.get();
  engine->runner_->set_choices(speculator != nullptr
                                   ? speculator->choices()
                                   : ChosenTokens{.choices = engine->sampler_->choices()});
  engine->may_go_ahead_ = device.is_asynchronous();
  for (int64_t i = 0; i < sequences; ++i)
    engine->ahead_tokens_.push_back(-1 - static_cast<int32_t>(i));
  engine->draft_jobs_.reserve(most);
  engine->draft_sequences_.reserve(most);
  engine->update_status();
  engine->thread_ = std::thread([raw = engine.get()] { raw->loop(); });
  return engine;
}

Status Engine::make_speculator(Device& device, Ops& ops) {
  DraftOptions& draft = options_.draft;
  if (draft.method == DraftMethod::kAuto) {
    draft.method = options_.dflash      ? DraftMethod::kDflash
                   : runner_->has_mtp() ? DraftMethod::kMtp
                                        : DraftMethod::kSuffix;
    draft.look_up = draft.method != DraftMethod::kSuffix;
  }
  if (!draft.enabled()) return {};
  std::shared_ptr<Drafter> model = options_.drafter;
  if (!model) {
    TRY_ASSIGN(model, make_drafter(draft, options_.dflash, *runner_, device, ops));
  }
  std::function<double()> clock = options_.clock;
  if (!clock) clock = [watch = Stopwatch()] { return watch.seconds(); };
  speculator_ = std::make_unique<Speculator>(
      Speculator::Options{.draft = draft,
                          .max_sequences = options_.runner.max_sequences,
                          .model = std::move(model),
                          .clock = std::move(clock)});
  return {};
}

Engine::~Engine() {
  if (!thread_.joinable()) return;  // make() failed
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  submitted_.notify_one();
  thread_.join();
}

Status Engine::check(const Request& request) const {
  TRY(request.sampling.validate(model_.config.vocab_size));
  if (request.prompt.empty()) return Error{ErrorCode::kInvalidArgument, "prompt: empty"};
  if (request.max_tokens <= 0)
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("max_tokens: ", request.max_tokens, " is not positive")};
  if (request.min_tokens < 0 || request.min_tokens > request.max_tokens)
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("min_tokens: ", request.min_tokens, " is outside [0, ", request.max_tokens,
                         "], up to max_tokens")};
  if (request.top_logprobs < 0 || request.top_logprobs > kTopLogprobs)
    return Error{ErrorCode::kInvalidArgument, str_cat("top_logprobs: ", request.top_logprobs,
                                                      " is outside [0, ", kTopLogprobs, "]")};
  if (request.prompt_logprobs < -1 || request.prompt_logprobs > kTopLogprobs)
    return Error{ErrorCode::kInvalidArgument, str_cat("prompt_logprobs: ", request.prompt_logprobs,
                                                      " is outside [0, ", kTopLogprobs, "]")};
  TRY(check_ids("prompt", request.prompt));
  TRY(check_ids("stop_token_ids", request.stop_ids));
  TRY(check_ids("reasoning", request.reasoning.closing));
  TRY(check_ids("allowed_token_ids", request.allowed_ids));
  for (const std::vector<int32_t>& ban : request.banned) {
    if (ban.empty()) return Error{ErrorCode::kInvalidArgument, "bad_words: an empty list of ids"};
    TRY(check_ids("bad_words", ban));
  }
  if (request.grammar && request.grammar->vocabulary().size() != model_.config.vocab_size)
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("grammar: its vocabulary has ", request.grammar->vocabulary().size(),
                         " ids, the model's ", model_.config.vocab_size)};
  const auto length = static_cast<int64_t>(request.prompt.size());
  if (length >= max_context_)
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("This model's maximum context length is ", max_context_,
                         " tokens. However, you requested a prompt of ", length, " tokens.")};
  return {};
}

Status Engine::check_ids(std::string_view field, std::span<const int32_t> ids) const {
  for (const int32_t token : ids)
    if (token < 0 || token >= model_.config.vocab_size)
      return Error{ErrorCode::kInvalidArgument,
                   str_cat(field, ": token id ", token, " is not in the vocabulary of ",
                           model_.config.vocab_size)};
  return {};
}

Result<TokenStream> Engine::submit(Request request, std::function<void()> on_news) {
  TRY(check(request));
  auto job = std::make_unique<Job>();
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  job->max_tokens = std::min(request.max_tokens, max_context_ - prompt_tokens);
  job->completion.prompt_tokens = prompt_tokens;
  job->completion.seed = request.sampling.seed ? *request.sampling.seed : random_seed();
  job->request = std::move(request);
  job->channel = std::make_shared<TokenChannel>(job->request.top_logprobs, std::move(on_news));
  TokenStream stream(job->channel);
  {
    const std::lock_guard lock(mutex_);
    if (draining_ || stopping_)
      return Error{ErrorCode::kUnavailable, "the engine is shutting down and takes no requests"};
    if (status_.waiting >= options_.max_waiting)
      return Error{ErrorCode::kResourceExhausted,
                   str_cat("the queue is full: ", status_.waiting, " requests wait already")};
    ++status_.waiting;
    inbox_.push_back(std::move(job));
  }
  submitted_.notify_one();
  return stream;
}

Result<Completion> Engine::generate(const Request& request, const Hooks& hooks) {
  CHECK(hooks.on_token, "nobody listens");
  TRY_ASSIGN(TokenStream stream, submit(request));
  const auto top = static_cast<size_t>(request.top_logprobs);
  StreamNews news;
  news.tokens.reserve(TokenChannel::kReserved);
  news.top_logprobs.reserve(TokenChannel::kReserved * top);
  int64_t heard = 0;
  bool wanted = true;
  while (!news.end) {
    stream.wait(news);
    if (wanted && news.progressed && hooks.on_prefill)
      wanted = hooks.on_prefill(news.prompt_done, static_cast<int64_t>(request.prompt.size()));
    for (size_t i = 0; wanted && i < news.tokens.size(); ++i, ++heard) {
      const StreamToken& token = news.tokens[i];
      wanted = hooks.on_token({.token = token.token,
                               .is_stop = token.is_stop,
                               .logprob = token.logprob,
                               .top = std::span(news.top_logprobs).subspan(i * top, top)});
    }
    if (!wanted) stream.cancel();
  }
  Completion completion = *std::move(news.end);
  if (wanted) return completion;
  // The engine may have gone on for a step before it heard; the caller has not seen that.
  const bool stopped =
      completion.reason == FinishReason::kStop && completion.completion_tokens == heard;
  if (!stopped) completion.reason = FinishReason::kCancelled;
  completion.completion_tokens = heard;
  return completion;
}

void Engine::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

void Engine::cancel_all() {
  drain();
  cancelling_ = true;
}

EngineStatus Engine::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void Engine::loop() {
  while (receive()) {
    drop_cancelled();
    start_jobs();
    update_status();  // before a first token can reach anybody
    run_step();
    forget_ended();
    update_status();
  }
  if (ahead_) sampler_->finish();  // nobody hears of it
  for (const std::unique_ptr<Job>& job : jobs_) finish(*job, FinishReason::kCancelled);
  jobs_.clear();
}

void Engine::run_step() {
  if (ahead_) return finish_decode();
  const StepPlan& plan = scheduler_->plan();
  if (plan.prefill >= 0) return prefill(plan);
  if (plan.idle()) return;
  start_decode(plan);
  finish_decode();
}

bool Engine::receive() {
  std::unique_lock lock(mutex_);
  submitted_.wait(lock, [this] { return stopping_ || !inbox_.empty() || !jobs_.empty(); });
  for (std::unique_ptr<Job>& job : inbox_) {
    job->id = next_id_++;
    scheduler_->add({.id = job->id,
                     .prompt = job->completion.prompt_tokens,
                     .pages = pages_for(job->positions())});
    jobs_.push_back(std::move(job));
  }
  inbox_.clear();
  return !stopping_;
}

void Engine::drop_cancelled() {
  for (const std::unique_ptr<Job>& job : jobs_)
    if (job->channel->cancelled() || cancelling_) finish(*job, FinishReason::kCancelled);
  forget_ended();
}

void Engine::forget_ended() {
  for (Job*& job : step_jobs_)
    if (job != nullptr && job->ended) job = nullptr;
  std::erase_if(jobs_, [](const std::unique_ptr<Job>& job) { return job->ended; });
}

void Engine::start_jobs() {
  const StatePool& pool = runner_->pool();
  while (const std::optional<int64_t> id =
             scheduler_->start(pool.kv.free_pages(), pool.recurrent.free_slots())) {
    Job& starting = job(*id);
    if (const Status status = start(starting); !status) {
      starting.completion.error = status.error();
      finish(starting, FinishReason::kError);
    }
  }
}

Status Engine::start(Job& job) {
  job.completion.queued_seconds = job.phase.seconds();
  job.phase.restart();
  job.sampler = std::make_unique<Sampler>(
      job.request, Sampler::Options{.seed = job.completion.seed, .max_tokens = job.max_tokens});
  int64_t edits = job.sampler->most_edits();
  for (const std::unique_ptr<Job>& other : jobs_)
    if (other->started && !other->ended) edits += other->sampler->most_edits();
  TRY(sampler_->reserve_edits(edits * options_.draft.decode_rows()));
  if (job.request.grammar) {
    TRY(sampler_->reserve_masks());
    job.matcher = std::make_unique<grammar::Matcher>(job.request.grammar);
  }
  if (!job.request.allowed_ids.empty()) {
    TRY(sampler_->reserve_masks());
    job.allowed.resize(static_cast<size_t>(vocab_size() + 31) / 32);
    for (const int32_t id : job.request.allowed_ids)
      job.allowed[static_cast<size_t>(id) / 32] |= 1u << id % 32;
  }
  if (job.request.prompt_logprobs >= 0) {
    job.scores = std::make_shared<PromptScores>();
    job.scores->tokens.reserve(job.request.prompt.size());
  }
  TRY_ASSIGN(job.sequence, runner_->open(job.positions()));
  job.started = true;
  job.next.reserve(static_cast<size_t>(options_.draft.decode_rows()));
  if (!speculator_) return {};
  job.text.reserve(static_cast<size_t>(job.positions()));
  job.text = job.request.prompt;
  return speculator_->begin(job.sequence, job.positions());
}

// Everything is given back before the reader hears of the end.
void Engine::finish(Job& job, FinishReason reason) {
  if (job.completion.completion_tokens > 0)
    job.completion.decode_seconds = job.phase.seconds();
  else if (job.started)
    job.completion.prefill_seconds = job.phase.seconds();
  else
    job.completion.queued_seconds = job.phase.seconds();
  job.completion.reason = reason;
  if (job.started) runner_->close(job.sequence);
  scheduler_->remove(job.id);
  job.ended = true;
  job.channel->finish(job.completion);
}

void Engine::update_status() {
  const KvCache& kv = runner_->pool().kv;
  const std::lock_guard lock(mutex_);
  status_ = {.running = scheduler_->running(),
             .waiting = scheduler_->waiting() + static_cast<int64_t>(inbox_.size()),
             .cache_tokens_used = (kv.pages() - kv.free_pages()) * kPageTokens,
             .cache_tokens = kv.pages() * kPageTokens,
             .prompt_tokens = prompt_tokens_,
             .completion_tokens = completion_tokens_,
             .drafts = draft_figures_};
}

Engine::Job& Engine::job(int64_t id) {
  const auto at = std::find_if(jobs_.begin(), jobs_.end(),
                               [id](const std::unique_ptr<Job>& job) { return job->id == id; });
  CHECK(at != jobs_.end(), "no job ", id);
  return **at;
}

}  // namespace pewter
