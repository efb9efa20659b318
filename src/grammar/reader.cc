#include "grammar/reader.h"

#include <algorithm>

#include "grammar/limits.h"

namespace pewter::grammar {

using Kind = Action::Kind;

Reader::Reader(const Automaton& automaton)
    : automaton_(&automaton), frames_(1), most_depth_(kDeepest) {}

void Reader::start(Threads& out) { start_at(automaton_->start(), 0, out); }

void Reader::start_at(uint32_t state, uint64_t counter, Threads& out) {
  out.clear();
  begin_round();
  enter({state, kBottom, counter}, out);
}

void Reader::step_all(const Threads& from, uint8_t byte, Threads& out) {
  out.clear();
  begin_round();
  for (const Thread& thread : from.list) {
    const uint32_t next = automaton_->next(thread.state, byte);
    if (next != Automaton::kDead) enter({next, thread.frame, thread.counter}, out);
  }
}

void Reader::leave(uint32_t frame, Threads& out) {
  out.clear();
  begin_round();
  const Frame& waiting = frames_[frame];
  enter({waiting.state, waiting.below, waiting.counter}, out);
}

void Reader::enter(const Thread& thread, Threads& out) {
  if (!fits(thread.frame, thread.state)) return;
  std::vector<Thread>& seen = automaton_->has_actions(thread.state) ? visited_ : out.list;
  if (std::find(seen.begin(), seen.end(), thread) != seen.end()) return;
  if (visited_.size() + out.list.size() >= kMostThreads) {
    overflowed_ = true;
    return;
  }
  if (!automaton_->has_actions(thread.state)) {
    out.list.push_back(thread);
    return;
  }
  visited_.push_back(thread);
  if (automaton_->reads(thread.state)) out.list.push_back(thread);
  for (const Action& action : automaton_->actions(thread.state)) act(thread, action, out);
}

void Reader::act(const Thread& thread, const Action& action, Threads& out) {
  const auto go = [&](uint32_t state, uint64_t counter) {
    enter({state, thread.frame, counter}, out);
  };
  switch (action.kind) {
    case Kind::kEnd: {
      if (thread.frame == kBottom) {
        out.complete = true;
        return;
      }
      const Frame waiting = frames_[thread.frame];
      return enter({waiting.state, waiting.below, waiting.counter}, out);
    }
    case Kind::kCall: {
      const uint32_t start = automaton_->rule_start(action.index);
      // A call at a rule's very end needs no frame: lists that call themselves stay flat.
      if (automaton_->only_ends(action.target)) return enter({start, thread.frame, 0}, out);
      const uint32_t depth = frames_[thread.frame].depth + 1;
      if (depth + automaton_->height(start) > most_depth_ ||
          depth - 1 + automaton_->height(action.target) > most_depth_)
        return;
      return enter({start, push({action.target, thread.frame, thread.counter, depth}), 0}, out);
    }
    case Kind::kEnter:
    case Kind::kNext: {
      const Loop& loop = automaton_->loop(action.index);
      const uint64_t turns = action.kind == Kind::kEnter ? 0 : thread.counter + 1;
      // Without an upper limit, turns beyond the lower one make no difference.
      const bool has_limit = loop.most != kUnlimited && !ignores_upper_limits_;
      const uint64_t kept = has_limit ? turns : std::min<uint64_t>(turns, loop.least);
      if (!has_limit || turns < loop.most) go(action.target, kept);
      if (turns >= loop.least) go(action.other, 0);
      return;
    }
    case Kind::kMark: {
      const uint64_t bit = uint64_t{1} << action.index;
      if ((thread.counter & bit) == 0) go(action.target, thread.counter | bit);
      return;
    }
    case Kind::kMarked:
      if ((thread.counter & action.marks) == action.marks) go(action.target, thread.counter);
      return;
    case Kind::kUnmarked:
      if ((thread.counter & action.marks) != action.marks) go(action.target, thread.counter);
      return;
  }
}

uint32_t Reader::push(const Frame& frame) {
  const auto [at, is_new] = index_.try_emplace(frame, static_cast<uint32_t>(frames_.size()));
  if (is_new) frames_.push_back(frame);
  return at->second;
}

void Reader::release(size_t mark) {
  while (frames_.size() > mark) {
    index_.erase(frames_.back());
    frames_.pop_back();
  }
}

void Reader::compact(std::span<Threads> users) {
  std::vector<bool> used(frames_.size(), false);
  used[kBottom] = true;
  for (const Threads& threads : users)
    for (const Thread& thread : threads.list)
      for (uint32_t frame = thread.frame; !used[frame]; frame = frames_[frame].below)
        used[frame] = true;
  std::vector<uint32_t> numbers(frames_.size(), 0);
  std::vector<Frame> kept = {frames_[kBottom]};
  index_.clear();
  for (uint32_t frame = 1; frame < frames_.size(); ++frame) {  // the frame below comes first
    if (!used[frame]) continue;
    Frame copy = frames_[frame];
    copy.below = numbers[copy.below];
    numbers[frame] = static_cast<uint32_t>(kept.size());
    index_.emplace(copy, numbers[frame]);
    kept.push_back(copy);
  }
  frames_ = std::move(kept);
  for (Threads& threads : users)
    for (Thread& thread : threads.list) thread.frame = numbers[thread.frame];
}

bool matches(const Automaton& automaton, std::string_view text) {
  Reader reader(automaton);
  Threads now, next;
  reader.start(now);
  for (const char c : text) {
    reader.step(now, static_cast<uint8_t>(c), next);
    std::swap(now, next);
    if (!now.alive()) return false;
  }
  return now.complete;
}

}  // namespace pewter::grammar
