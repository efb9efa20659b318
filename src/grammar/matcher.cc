#include "grammar/matcher.h"

#include <algorithm>

#include "grammar/limits.h"

namespace pewter::grammar {
namespace {

constexpr size_t kFramesBeforeCompacting = 4096;

void set_bits(std::span<uint32_t> mask, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) mask[static_cast<size_t>(token) / 32] |= 1u << token % 32;
}

}  // namespace

TokenGrammar::TokenGrammar(Automaton automaton, std::shared_ptr<MaskCache> masks)
    : automaton_(std::move(automaton)), masks_(std::move(masks)), owner_(masks_->new_owner()) {
  const std::string* last_rule = nullptr;
  uint64_t last_owner = owner_;
  places_.resize(automaton_.size());
  for (uint32_t state = 1; state < automaton_.size(); ++state) {
    const std::string* rule = automaton_.closed_rule(state);
    if (rule == nullptr) {
      places_[state] = {owner_, state};
      continue;
    }
    if (rule != last_rule) last_owner = masks_->owner_of(*rule);
    last_rule = rule;
    places_[state] = {last_owner, state - automaton_.first_state_of_rule(state)};
  }
}

std::shared_ptr<const StateMask> TokenGrammar::mask_of(const Thread& thread) const {
  MaskCache::Key key{.owner = places_[thread.state].owner,
                     .state = places_[thread.state].state,
                     .counter = thread.counter};
  if (const int32_t index = automaton_.loop_of(thread.state); index >= 0) {
    // Turns further away than the longest token reaches make no difference.
    const Loop& loop = automaton_.loop(static_cast<uint32_t>(index));
    const uint64_t reach = vocabulary().longest() + 1, turns = thread.counter;
    key.counter = std::min(reach, loop.least > turns ? loop.least - turns : 0);
    if (loop.most != kUnlimited && loop.most - turns < reach)
      key.left = static_cast<uint32_t>(loop.most - turns);
  }
  return masks_->get(key, automaton_, thread);
}

Matcher::Matcher(std::shared_ptr<const TokenGrammar> grammar)
    : grammar_(std::move(grammar)),
      reader_(grammar_->automaton()),
      walk_(grammar_->vocabulary()),
      history_(1) {
  reader_.start(history_[0].threads);
}

bool Matcher::push(int32_t token) {
  const std::string_view text = grammar_->vocabulary().text(token);
  if (text.empty()) return false;
  const size_t frames = reader_.mark();
  if (history_.size() == depth_ + 1) history_.emplace_back();
  Step& next = history_[depth_ + 1];
  next.frames = frames;
  scratch_ = now();
  for (const char c : text) {
    reader_.step(scratch_, static_cast<uint8_t>(c), next.threads);
    std::swap(scratch_, next.threads);
    if (!scratch_.alive()) {
      reader_.release(frames);
      return false;
    }
  }
  std::swap(scratch_, next.threads);
  ++depth_;
  return true;
}

void Matcher::pop(int64_t n) {
  CHECK(n >= 0 && n <= static_cast<int64_t>(depth_), "pop ", n, " of ", depth_, " tokens");
  if (n == 0) return;
  depth_ -= static_cast<size_t>(n);
  reader_.release(history_[depth_ + 1].frames);
}

void Matcher::commit() {
  std::swap(history_[0], history_[depth_]);
  depth_ = 0;
  if (reader_.mark() > kFramesBeforeCompacting) reader_.compact({&history_[0].threads, 1});
}

void Matcher::fill_mask(std::span<uint32_t> mask) {
  CHECK(static_cast<int64_t>(mask.size()) == grammar_->vocabulary().mask_words(), "mask of ",
        mask.size(), " words");
  std::ranges::fill(mask, 0u);
  for (const Thread& thread : now().list) {
    const uint32_t depth = reader_.depth(thread.frame) + grammar_->automaton().height(thread.state);
    if (depth + kMaskLevels > kDeepest) {
      add_whole_walk(thread, mask);
      continue;
    }
    const std::shared_ptr<const StateMask> state = grammar_->mask_of(thread);
    for (size_t i = 0; i < state->bits.size(); ++i) mask[i] |= state->bits[i];
    set_bits(mask, state->tokens);
    if (!state->ends.empty() || !state->exits.empty()) add_exits(thread, *state, mask);
  }
}

void Matcher::add_whole_walk(const Thread& thread, std::span<uint32_t> mask) {
  const size_t frames = reader_.mark();
  below_.clear();
  below_.list.push_back(thread);
  walk_.run(reader_, 0, below_, [&](uint32_t node, const Threads&) {
    set_bits(mask, grammar_->vocabulary().tokens_at(node));
  });
  reader_.release(frames);
}

void Matcher::add_exits(const Thread& thread, const StateMask& state, std::span<uint32_t> mask) {
  if (thread.frame == kBottom) return set_bits(mask, state.ends);
  const size_t frames = reader_.mark();
  reader_.leave(thread.frame, below_);
  if (below_.alive()) set_bits(mask, state.ends);
  for (const uint32_t exit : state.exits)
    walk_.run(reader_, exit, below_, [&](uint32_t node, const Threads&) {
      set_bits(mask, grammar_->vocabulary().tokens_at(node));
    });
  reader_.release(frames);
}

}  // namespace pewter::grammar
