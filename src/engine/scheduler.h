// Scheduler: which request starts, and what the next step does. Pure policy on the host: it knows
// tokens, pages and slots as numbers, and is simulated in tests without a model.
//
//   start   first come, first served: the head of the queue starts when its pages and a slot are
//           free, and nothing overtakes it. All pages it may ever need are its own from then on, so
//           what has started always finishes.
//   steps   prompts are read in chunks, one prompt after the other in the order they started. A
//           chunk and a decode step of all running sequences take turns, so that neither a long
//           prompt stops the streams nor they the prompt.
#pragma once

#include <deque>
#include <optional>

#include "engine/request.h"

namespace pewter {

// What the next step does: a chunk of one sequence's prompt, or a token for each of `decode`.
struct StepPlan {
  int64_t prefill = -1;        // sequence, or -1
  int64_t begin = 0, end = 0;  // its rows
  std::vector<int64_t> decode;
  bool idle() const { return prefill < 0 && decode.empty(); }
};

class Scheduler {
 public:
  // Prompts are cut at multiples of chunk_rows.
  explicit Scheduler(int64_t chunk_rows) : chunk_rows_(chunk_rows) {}

  struct Sequence {
    int64_t id = 0;      // the caller's, ≥ 0, unique among those here
    int64_t prompt = 0;  // tokens, at least 1
    int64_t pages = 0;   // of the KV cache for prompt and output
  };
  void add(const Sequence& sequence);

  // Starts the first waiting sequence if it fits, and returns its id.
  std::optional<int64_t> start(int64_t free_pages, int64_t free_slots);

  // The next step of what has started. The caller runs it: a planned chunk counts as read.
  // The result is valid until the next call.
  const StepPlan& plan();

  // A sequence that has ended or was cancelled, waiting or running.
  void remove(int64_t id);

  // Whether every sequence that runs decodes: none has a prompt to be read.
  bool only_decodes() const;

  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }

 private:
  struct Running {
    int64_t id = 0, prompt = 0, done = 0;
  };

  int64_t chunk_rows_;
  std::deque<Sequence> waiting_;
  std::vector<Running> running_;  // in the order they started
  StepPlan plan_;
  bool prefilled_last_ = false;
};

}  // namespace pewter
