// MaskCache: which tokens of a vocabulary can be read from a state of a grammar, kept from the
// first time it was asked. Rules that call no others (a JSON string, a pattern) are known by what
// they say, so that grammars share them.
//
// A state's mask is what holds on any stack: tokens that can be read up to the end of the state's
// rule or within it. Where the rule may end inside a token, the rest of the token is up to the
// rules below; the trie nodes where that happens are listed, and looked at when the stack is known.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "grammar/reader.h"
#include "grammar/vocabulary.h"

namespace pewter::grammar {

struct StateMask {
  std::vector<uint32_t> bits;   // [mask_words], or empty where `tokens` lists them
  std::vector<int32_t> tokens;  // few
  std::vector<int32_t> ends;    // tokens with which the rule ends: up to the rules below as well
  std::vector<uint32_t> exits;  // nodes with longer tokens at which the rule may have ended
  int64_t bytes() const {
    return static_cast<int64_t>((bits.size() + tokens.size() + ends.size() + exits.size()) * 4 +
                                96);
  }
};

// Reads every token below a node of the trie.
class TrieWalk {
 public:
  explicit TrieWalk(const Vocabulary& vocabulary);
  // on_node(node, threads): what its tokens lead to.
  template <typename OnNode>
  void run(Reader& reader, uint32_t root, const Threads& base, const OnNode& on_node) {
    const std::span<const Vocabulary::Node> nodes = vocabulary_->nodes();
    const uint8_t depth = nodes[root].depth;
    for (uint32_t i = root + 1; i < nodes[root].end;) {
      const Vocabulary::Node& node = nodes[i];
      const Threads& from = node.depth == depth + 1 ? base : levels_[node.depth - 1u];
      Threads& to = levels_[node.depth];
      reader.step(from, node.byte, to);
      if (to.alive()) on_node(i, to);
      i = to.list.empty() ? node.end : i + 1;
    }
  }

 private:
  const Vocabulary* vocabulary_;
  std::vector<Threads> levels_;  // by depth
};

// Safe for several threads.
class MaskCache {
 public:
  static constexpr int64_t kMostBytes = int64_t{256} << 20;
  explicit MaskCache(std::shared_ptr<const Vocabulary> vocabulary, int64_t most_bytes = kMostBytes);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  // A number for a grammar, or for a closed rule by its description.
  uint64_t new_owner();
  uint64_t owner_of(const std::string& closed_rule);

  static constexpr uint32_t kFar = UINT32_MAX;
  struct Key {
    uint64_t owner = 0;
    uint32_t state = 0;    // within the owner
    uint64_t counter = 0;  // what the mask depends on of it
    uint32_t left = kFar;  // turns that are left in a counted repeat, if a token can take them
    auto operator<=>(const Key&) const = default;
  };
  // The mask of a thread.
  std::shared_ptr<const StateMask> get(const Key& key, const Automaton& automaton,
                                       const Thread& thread);

  struct Figures {
    int64_t made = 0, bytes = 0;
    double seconds = 0;  // spent making them
  };
  Figures figures() const;

 private:
  // With the lock held:
  std::shared_ptr<const StateMask> find_or_make(const Key& key, const Automaton& automaton,
                                                const Thread& thread);
  StateMask make(const Automaton& automaton, const Thread& thread);
  // Reads the vocabulary by sets; false, with the mask undefined, when they are too many.
  bool read_by_sets(Reader& reader, const Threads& base, StateMask& mask) const;
  // From the mask that knows no upper limit: tokens of at most as many bytes as turns are left are
  // not concerned, the others are read again.
  StateMask make_limited(const StateMask& unlimited, const Automaton& automaton,
                         const Thread& thread, uint32_t left);
  void add_node(uint32_t node, bool complete, bool reads, StateMask& mask) const;
  void pack(StateMask& mask) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  int64_t most_bytes_;
  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<const StateMask>> masks_;
  std::map<std::string, uint64_t> closed_rules_;
  uint64_t owners_ = 0;
  TrieWalk walk_;
  Figures figures_;
};

// Levels that the tokens of a cached mask may open; deeper ones are not in it.
inline constexpr uint32_t kMaskLevels = 64;

}  // namespace pewter::grammar
