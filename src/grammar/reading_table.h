// ReadingTable: what bytes make of sets of threads, worked out once for each set and class of
// bytes. Reading a whole vocabulary comes to the same few sets again and again.
#pragma once

#include <map>

#include "grammar/reader.h"

namespace pewter::grammar {

class ReadingTable {
 public:
  static constexpr uint32_t kNone = 0;  // nothing can be read any more
  // The reader outlives it, and keeps all its frames meanwhile.
  explicit ReadingTable(Reader& reader);

  uint32_t number_of(const Threads& threads);
  uint32_t next(uint32_t set, uint8_t byte) {
    const uint32_t known = next_[set * classes_ + reader_.automaton().class_of(byte)];
    return known != kUnknown ? known : work_out(set, byte);
  }
  bool is_complete(uint32_t set) const { return sets_[set]->complete; }
  bool reads(uint32_t set) const { return !sets_[set]->list.empty(); }
  // The kinds of bytes (byte_kind.h) all of which leave the set as it is; none if a text may end.
  uint8_t idle_kinds(uint32_t set);
  size_t size() const { return sets_.size(); }

 private:
  static constexpr uint32_t kUnknown = UINT32_MAX;
  struct Order {
    bool operator()(const Threads& a, const Threads& b) const;
  };
  uint32_t work_out(uint32_t set, uint8_t byte);

  Reader& reader_;
  uint32_t classes_;
  std::map<Threads, uint32_t, Order> numbers_;
  std::vector<const Threads*> sets_;
  std::vector<uint32_t> next_;   // [sets, classes]
  std::vector<int> idle_kinds_;  // -1: not known yet
  Threads scratch_;
};

}  // namespace pewter::grammar
