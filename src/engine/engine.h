// Engine: runs requests on a model, many at a time, and streams their tokens. It owns one thread,
// the only one that touches model state: the thread starts what the scheduler lets in, runs the
// steps it plans, and pushes each token into its request's channel. Requests join and leave between
// any two steps; what a request says does not depend on its neighbours (the row law), nor on what
// was drafted for it: every row of a step is sampled as it would be without drafts, and counts only
// if the guesses before it were right (sample, then match).
//
// Read next: scheduler.h (what to run), model_runner.h (how), token_stream.h (the reader's side).
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "engine/drafter.h"
#include "engine/model_runner.h"
#include "engine/scheduler.h"
#include "engine/speculator.h"
#include "engine/step_sampler.h"
#include "engine/token_stream.h"

namespace pewter {

struct EngineOptions {
  RunnerOptions runner;       // max_sequences run at once and share cache_tokens
  int64_t max_context = 0;    // prompt + output of one sequence; 0: what model and cache allow
  int64_t max_waiting = 256;  // requests that may wait for a start; further ones are refused
  // Bits of ids that may be sampled, ⌈vocabulary / 32⌉ words; empty: all below vocab_limit.
  std::vector<uint32_t> token_mask;
  int64_t vocab_limit = 0;  // ids from here on are never sampled; 0: the model's vocabulary
  DraftOptions draft;       // off by default; raises runner.decode_rows to what it needs
  std::shared_ptr<const DflashModel> dflash;  // of draft.method kDflash; the model keeps its taps
  std::shared_ptr<Drafter> drafter;           // drafts in place of draft.method's own
  std::function<double()> clock;  // seconds, by which steps are measured; empty: real ones
};

struct EngineStatus {
  int64_t running = 0, waiting = 0;
  int64_t cache_tokens_used = 0, cache_tokens = 0;   // positions reserved, and all there are
  int64_t prompt_tokens = 0, completion_tokens = 0;  // since the engine began
  DraftFigures drafts;                               // likewise
};

// One token of generate(). `top` lives until the callback returns.
struct TokenEvent {
  int32_t token = 0;
  bool is_stop = false;
  float logprob = 0;
  std::span<const TopLogprob> top;  // request.top_logprobs of them
};

class Engine {
 public:
  // model, device and ops outlive the engine, and are its own while it lives. Errors:
  // kInvalidArgument (options), and the runner's.
  static Result<std::unique_ptr<Engine>> make(const Qwen35Model& model, Device& device, Ops& ops,
                                              const EngineOptions& options);
  // Ends what runs or waits as kCancelled.
  ~Engine();

  // Queues a request. on_news is called on the engine's thread when something has arrived and the
  // reader had seen all before it, so at most once between two looks; it must return at once and
  // neither call the engine nor destroy the stream. Errors: kInvalidArgument (check);
  // kResourceExhausted when the queue is full; kUnavailable after drain().
  Result<TokenStream> submit(Request request, std::function<void()> on_news = {});
  // What submit would say of the request itself. Error: kInvalidArgument naming the field: sampling
  // parameters, empty or too long prompt, ids outside the vocabulary.
  Status check(const Request& request) const;

  // What the caller hears while a request runs; returning false cancels it.
  struct Hooks {
    std::function<bool(const TokenEvent&)> on_token;
    // Prompt tokens read, and all; chunks that came in quick succession may be told as one.
    std::function<bool(int64_t done, int64_t total)> on_prefill = {};
  };
  // Submits a request and hears it to its end on the caller's thread. Errors are submit's; a fault
  // while generating ends the request with reason kError instead.
  Result<Completion> generate(const Request& request, const Hooks& hooks);

  // From now on submit refuses; what is queued and running goes on to its end.
  void drain();
  // And ends what is queued and running within a step, as kCancelled.
  void cancel_all();
  // Any thread.
  EngineStatus status() const;

  // How it drafts: never kAuto.
  const DraftOptions& draft_options() const { return options_.draft; }
  int64_t max_context() const { return max_context_; }
  int64_t vocab_size() const { return model_.config.vocab_size; }
  // Only while nothing runs.
  ModelRunner& runner() { return *runner_; }

 private:
  struct Job;
  using Jobs = std::vector<std::unique_ptr<Job>>;

  explicit Engine(const Qwen35Model& model);
  Status check_ids(std::string_view field, std::span<const int32_t> ids) const;
  Status make_speculator(Device& device, Ops& ops);
  void loop();
  void run_step();
  // Takes new requests from the inbox; waits for one when idle. False: the engine ends.
  bool receive();
  void drop_cancelled();
  void start_jobs();
  Status start(Job& job);
  // Steps (engine_steps.cc).
  void prefill(const StepPlan& plan);
  // The first half of a decode step enqueues it, the second half hears what was chosen. In between
  // the next step of the same sequences may be enqueued (decision 23): then it is ahead_.
  void start_decode(const StepPlan& plan);
  void decode_step_jobs();
  void finish_decode();
  bool can_go_ahead() const;
  void go_ahead();
  // The step that verifies guesses may be enqueued before they are heard (decision 26).
  bool can_verify_ahead() const;
  void verify_ahead();
  // How likely the tokens behind the rows of a chunk were; logits() is that of its last row then.
  void score_prompt(Job& job, int64_t begin, int64_t end);
  // Begins to choose the tokens of step_jobs_, whose logits the last step left in order.
  void start_choosing(bool ahead = false);
  // How many of a sequence's rows count, of drafts before a stop: up to the first whose token is
  // not the draft after it.
  static int64_t agreed_rows(std::span<const int32_t> drafts,
                             std::span<const StepSampler::Choice> choices);
  static int64_t drafts_before_stop(const Job& job);
  static bool ends_at(const Job& job, int32_t token);
  // Adds a job whose last step committed `rows` rows from first_row on to those drafted for next.
  void want_draft(Job& job, int64_t first_row, int64_t rows);
  // `others`: sequences of the next step that are not among them.
  void draft(int64_t others);
  void drop_unreadable();
  // How many of the drafts the grammar can read, up to the one that would end the text: as with a
  // stop, the row before it chooses it itself.
  static size_t readable_drafts(Job& job);
  // Tells the grammar of a token; false: that was the last one.
  bool follow_grammar(Job& job, int32_t token);
  void publish(Job& job, const StepSampler::Choice& choice);
  // Why no token could be chosen: the request's fault, where it narrows the choice.
  static Error nothing_to_choose(const Job& job);
  void finish(Job& job, FinishReason reason);
  Job& job(int64_t id);
  void forget_ended();
  void update_status();

  const Qwen35Model& model_;
  EngineOptions options_;
  int64_t max_context_ = 0;

  // The engine thread's own.
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<Speculator> speculator_;  // null: nothing is drafted
  bool after_prefill_ = false;              // the device may still be busy with it
  std::unique_ptr<StepSampler> sampler_;
  std::unique_ptr<Scheduler> scheduler_;
  Jobs jobs_;  // waiting and running
  int64_t next_id_ = 0, prompt_tokens_ = 0, completion_tokens_ = 0;
  DraftFigures draft_figures_;
  std::vector<Job*> step_jobs_;  // null: has ended since the step was enqueued
  std::vector<SequenceRows> step_rows_;
  std::vector<StepSampler::Rows> sampled_rows_;
  std::vector<int32_t> ahead_tokens_;  // -1 - i, for the choice of row i
  bool may_go_ahead_ = false;          // the device runs while the host goes on
  bool ahead_ = false;                 // a step of step_jobs_ is on its way and not yet heard of
  double step_begin_ = 0;
  std::vector<Job*> draft_jobs_;
  std::vector<DraftSequence> draft_sequences_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable submitted_;
  Jobs inbox_;
  bool draining_ = false, stopping_ = false;
  std::atomic<bool> cancelling_{false};
  EngineStatus status_;

  std::thread thread_;
};

}  // namespace pewter
