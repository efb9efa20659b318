#include "grammar/reading_table.h"

#include <algorithm>
#include <tuple>

#include "grammar/byte_kind.h"

namespace pewter::grammar {

ReadingTable::ReadingTable(Reader& reader)
    : reader_(reader), classes_(reader.automaton().class_count()) {
  number_of(Threads{});  // kNone
}

bool ReadingTable::Order::operator()(const Threads& a, const Threads& b) const {
  if (a.complete != b.complete) return a.complete < b.complete;
  const auto key = [](const Thread& t) { return std::tuple(t.state, t.frame, t.counter); };
  return std::ranges::lexicographical_compare(a.list, b.list, {}, key, key);
}

uint32_t ReadingTable::number_of(const Threads& threads) {
  const auto [at, is_new] = numbers_.try_emplace(threads, static_cast<uint32_t>(sets_.size()));
  if (is_new) {
    sets_.push_back(&at->first);
    next_.resize(sets_.size() * classes_, kUnknown);
    idle_kinds_.push_back(-1);
  }
  return at->second;
}

uint32_t ReadingTable::work_out(uint32_t set, uint8_t byte) {
  reader_.step(*sets_[set], byte, scratch_);
  const uint32_t next = number_of(scratch_);
  next_[set * classes_ + reader_.automaton().class_of(byte)] = next;
  return next;
}

uint8_t ReadingTable::idle_kinds(uint32_t set) {
  if (idle_kinds_[set] < 0) {
    uint8_t moving = is_complete(set) ? 0xFF : 0;
    for (int byte = 0; byte < 256; ++byte) {
      const auto value = static_cast<uint8_t>(byte);
      if ((moving & byte_kind(value)) == 0 && next(set, value) != set) moving |= byte_kind(value);
    }
    idle_kinds_[set] = static_cast<uint8_t>(~moving);
  }
  return static_cast<uint8_t>(idle_kinds_[set]);
}

}  // namespace pewter::grammar
