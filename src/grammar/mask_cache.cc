#include "grammar/mask_cache.h"

#include "base/clock.h"
#include "grammar/reading_table.h"

namespace pewter::grammar {

TrieWalk::TrieWalk(const Vocabulary& vocabulary)
    : vocabulary_(&vocabulary), levels_(vocabulary.longest() + 1) {}

MaskCache::MaskCache(std::shared_ptr<const Vocabulary> vocabulary, int64_t most_bytes)
    : vocabulary_(std::move(vocabulary)), most_bytes_(most_bytes), walk_(*vocabulary_) {}

uint64_t MaskCache::new_owner() {
  const std::lock_guard lock(mutex_);
  return ++owners_;
}

uint64_t MaskCache::owner_of(const std::string& closed_rule) {
  constexpr size_t kMostRules = 4096;
  const std::lock_guard lock(mutex_);
  if (closed_rules_.size() >= kMostRules) closed_rules_.clear();  // owners are never used again
  const auto [at, is_new] = closed_rules_.try_emplace(closed_rule, 0);
  if (is_new) at->second = ++owners_;
  return at->second;
}

std::shared_ptr<const StateMask> MaskCache::get(const Key& key, const Automaton& automaton,
                                                const Thread& thread) {
  const std::lock_guard lock(mutex_);
  return find_or_make(key, automaton, thread);
}

std::shared_ptr<const StateMask> MaskCache::find_or_make(const Key& key, const Automaton& automaton,
                                                         const Thread& thread) {
  if (const auto at = masks_.find(key); at != masks_.end()) return at->second;
  std::shared_ptr<const StateMask> unlimited;
  if (key.left != kFar)
    unlimited = find_or_make({key.owner, key.state, key.counter}, automaton, thread);
  const Stopwatch watch;
  const auto mask = std::make_shared<const StateMask>(
      unlimited ? make_limited(*unlimited, automaton, thread, key.left) : make(automaton, thread));
  figures_.seconds += watch.seconds();
  ++figures_.made;
  if (figures_.bytes + mask->bytes() > most_bytes_) {
    masks_.clear();
    figures_.bytes = 0;
  }
  figures_.bytes += mask->bytes();
  masks_.emplace(key, mask);
  return mask;
}

void MaskCache::add_node(uint32_t node, bool complete, bool reads, StateMask& mask) const {
  const std::span<const int32_t> tokens = vocabulary_->tokens_at(node);
  std::vector<int32_t>& list = reads ? mask.tokens : mask.ends;
  list.insert(list.end(), tokens.begin(), tokens.end());
  if (complete && vocabulary_->nodes()[node].end > node + 1) mask.exits.push_back(node);
}

void MaskCache::pack(StateMask& mask) const {
  const auto words = static_cast<size_t>(vocabulary_->mask_words());
  if (mask.tokens.size() > words / 2) {
    mask.bits.assign(words, 0);
    for (const int32_t token : mask.tokens)
      mask.bits[static_cast<size_t>(token) / 32] |= 1u << token % 32;
    mask.tokens.clear();
  }
  mask.tokens.shrink_to_fit();
  mask.exits.shrink_to_fit();
}

StateMask MaskCache::make(const Automaton& automaton, const Thread& thread) {
  StateMask mask;
  Reader reader(automaton);
  reader.limit_depth(automaton.height(thread.state) + kMaskLevels);
  reader.ignore_upper_limits();
  Threads base;
  base.list.push_back({thread.state, kBottom, thread.counter});
  if (!read_by_sets(reader, base, mask)) {
    mask = {};
    walk_.run(reader, 0, base, [&](uint32_t node, const Threads& threads) {
      add_node(node, threads.complete, !threads.list.empty(), mask);
    });
  }
  pack(mask);
  return mask;
}

bool MaskCache::read_by_sets(Reader& reader, const Threads& base, StateMask& mask) const {
  constexpr size_t kMostSets = 2048;
  ReadingTable table(reader);
  std::vector<uint32_t> sets(vocabulary_->longest() + 1);  // by depth
  sets[0] = table.number_of(base);
  const std::span<const Vocabulary::Node> nodes = vocabulary_->nodes();
  for (uint32_t i = 1; i < nodes[0].end;) {
    const Vocabulary::Node& node = nodes[i];
    const uint32_t set = table.next(sets[node.depth - 1u], node.byte);
    sets[node.depth] = set;
    if (set == ReadingTable::kNone) {
      i = node.end;
      continue;
    }
    if (node.end > i + 4 && (node.kinds_below & ~table.idle_kinds(set)) == 0) {
      const std::span<const int32_t> tokens = vocabulary_->tokens_below(i);
      mask.tokens.insert(mask.tokens.end(), tokens.begin(), tokens.end());
      i = node.end;
      continue;
    }
    add_node(i, table.is_complete(set), table.reads(set), mask);
    i = table.reads(set) ? i + 1 : node.end;
    if (table.size() > kMostSets) return false;
  }
  return true;
}

StateMask MaskCache::make_limited(const StateMask& unlimited, const Automaton& automaton,
                                  const Thread& thread, uint32_t left) {
  Reader reader(automaton);
  reader.limit_depth(automaton.height(thread.state) + kMaskLevels);
  Threads now, next;
  const auto read = [&](std::string_view text) {
    now.clear();
    now.list.push_back({thread.state, kBottom, thread.counter});
    for (const char c : text) {
      reader.step(now, static_cast<uint8_t>(c), next);
      std::swap(now, next);
      if (!now.alive()) return;
    }
  };
  StateMask mask = unlimited;
  const auto too_long = [&](int32_t token) {
    read(vocabulary_->text(token));
    return !now.alive();
  };
  for (std::vector<int32_t>* list : {&mask.tokens, &mask.ends})
    std::erase_if(*list, [&](int32_t token) {
      return vocabulary_->text(token).size() > left && too_long(token);
    });
  if (!mask.bits.empty())
    for (const int32_t token : vocabulary_->longer_than(left)) {
      uint32_t& word = mask.bits[static_cast<size_t>(token) / 32];
      const uint32_t bit = 1u << token % 32;
      if ((word & bit) != 0 && too_long(token)) word &= ~bit;
    }
  std::erase_if(mask.exits, [&](uint32_t node) {
    const uint8_t depth = vocabulary_->nodes()[node].depth;
    if (depth <= left) return false;
    read(vocabulary_->text(vocabulary_->tokens_below(node).front()).substr(0, depth));
    return !now.complete;
  });
  return mask;
}

MaskCache::Figures MaskCache::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

}  // namespace pewter::grammar
