// TokenGrammar: a compiled grammar over a vocabulary. Matcher: where one text stands in it, token
// by token; which tokens may come next; and whether the text may end.
#pragma once

#include <list>

#include "grammar/mask_cache.h"

namespace pewter::grammar {

// Immutable to its users, who may be several threads.
class TokenGrammar {
 public:
  TokenGrammar(Automaton automaton, std::shared_ptr<MaskCache> masks);

  const Automaton& automaton() const { return automaton_; }
  const Vocabulary& vocabulary() const { return masks_->vocabulary(); }
  std::shared_ptr<const StateMask> mask_of(const Thread& thread) const;

 private:
  Automaton automaton_;
  std::shared_ptr<MaskCache> masks_;
  uint64_t owner_;
  // By state: the owner of its masks, and its number there.
  struct Place {
    uint64_t owner = 0;
    uint32_t state = 0;
  };
  std::vector<Place> places_;
};

class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const TokenGrammar> grammar);

  // Reads a token. False, and nothing has changed, when the grammar does not allow it.
  bool push(int32_t token);
  // Takes the last n tokens back; none from before commit().
  void pop(int64_t n);
  // What has been read is there to stay.
  void commit();

  // The text may end here.
  bool is_complete() const { return now().complete; }
  // It must.
  bool is_finished() const { return now().complete && now().list.empty(); }
  // The text could be read in more ways than the limit; some were dropped.
  bool overflowed() const { return reader_.overflowed(); }
  // Bits of the tokens that may come next, and of no others. [⌈vocabulary / 32⌉]
  void fill_mask(std::span<uint32_t> mask);

  const TokenGrammar& grammar() const { return *grammar_; }

 private:
  struct Step {
    Threads threads;
    size_t frames = 0;  // of the reader, before it
  };
  const Threads& now() const { return history_[depth_].threads; }
  void add_whole_walk(const Thread& thread, std::span<uint32_t> mask);
  void add_exits(const Thread& thread, const StateMask& state, std::span<uint32_t> mask);

  std::shared_ptr<const TokenGrammar> grammar_;
  Reader reader_;
  TrieWalk walk_;
  std::vector<Step> history_;  // the committed place, then one for each token; kept for reuse
  size_t depth_ = 0;           // the last one in use
  Threads scratch_, below_;
};

}  // namespace pewter::grammar
