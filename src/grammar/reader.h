// Reader: reads bytes with an automaton. Where it stands is a set of threads, one for each way the
// text so far can be read; a thread is a state of a rule and the stack of rules that wait for it.
// Stacks share their lower parts as frames in an arena.
#pragma once

#include <unordered_map>

#include "grammar/automaton.h"

namespace pewter::grammar {

inline constexpr uint32_t kBottom = 0;  // the frame under the outermost rule

// A state that reads a byte next. `counter`: turns of its counted repeat, or its rule's marks.
struct Thread {
  uint32_t state = 0, frame = kBottom;
  uint64_t counter = 0;
  bool operator==(const Thread&) const = default;
};

struct Threads {
  std::vector<Thread> list;
  bool complete = false;  // the text may end here
  bool alive() const { return complete || !list.empty(); }
  bool operator==(const Threads&) const = default;
  void clear() {
    list.clear();
    complete = false;
  }
};

class Reader {
 public:
  explicit Reader(const Automaton& automaton);

  void start(Threads& out);
  // Any state as if its rule were the outermost one.
  void start_at(uint32_t state, uint64_t counter, Threads& out);
  // What `from` becomes behind a byte; may not be the same object as out.
  void step(const Threads& from, uint8_t byte, Threads& out) {
    if (from.list.size() != 1) return step_all(from, byte, out);
    // Nearly always there is one way to read a text, and no rule begins or ends.
    const Thread& thread = from.list.front();
    const uint32_t next = automaton_->next(thread.state, byte);
    if (automaton_->has_actions(next)) return step_all(from, byte, out);
    out.clear();
    if (next != Automaton::kDead && fits(thread.frame, next))
      out.list.push_back({next, thread.frame, thread.counter});
  }
  // Where a thread's rule, now at its end, hands over to: the threads of the frame below.
  void leave(uint32_t frame, Threads& out);

  uint32_t depth(uint32_t frame) const { return frames_[frame].depth; }
  // The frames made since `mark` are forgotten; no thread may use them any more.
  size_t mark() const { return frames_.size(); }
  void release(size_t mark);
  // Forgets all frames that these threads do not use, and renumbers them.
  void compact(std::span<Threads> users);

  // At most so many levels, from the bottom.
  void limit_depth(uint32_t levels) { most_depth_ = levels; }
  // Counted repeats may go on for ever.
  void ignore_upper_limits() { ignores_upper_limits_ = true; }
  // A text had more readings than the limit; they were dropped.
  bool overflowed() const { return overflowed_; }
  const Automaton& automaton() const { return *automaton_; }

 private:
  struct Frame {
    uint32_t state = 0, below = 0;  // where to go on, and the frame of that rule
    uint64_t counter = 0;
    uint32_t depth = 0;
    bool operator==(const Frame&) const = default;
  };
  struct FrameHash {
    size_t operator()(const Frame& frame) const {
      uint64_t h = frame.state * 0x9E3779B97F4A7C15u;
      h = (h ^ frame.below) * 0xC2B2AE3D27D4EB4Fu;
      h = (h ^ frame.counter) * 0x165667B19E3779F9u;
      return h ^ h >> 32;
    }
  };
  void begin_round() { visited_.clear(); }
  void step_all(const Threads& from, uint8_t byte, Threads& out);
  bool fits(uint32_t frame, uint32_t state) const {
    return frames_[frame].depth + automaton_->height(state) <= most_depth_;
  }
  // Takes a thread's actions, all the way to states that read.
  void enter(const Thread& thread, Threads& out);
  void act(const Thread& thread, const Action& action, Threads& out);
  uint32_t push(const Frame& frame);

  const Automaton* automaton_;
  std::vector<Frame> frames_;
  std::unordered_map<Frame, uint32_t, FrameHash> index_;
  std::vector<Thread> visited_;  // with actions, in this round
  uint32_t most_depth_;
  bool overflowed_ = false, ignores_upper_limits_ = false;
};

// Whether the automaton accepts the whole text.
bool matches(const Automaton& automaton, std::string_view text);

}  // namespace pewter::grammar
