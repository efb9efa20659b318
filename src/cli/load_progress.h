// How far a load has come, on standard error: a bar that moves where a person watches, one line at
// the end elsewhere.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "cli/memory_report.h"
#include "model/qwen35/load.h"

namespace pewter {

class LoadProgress {
 public:
  // quiet: nothing is written at all. The name is what is loaded, for the line.
  LoadProgress(std::string name, bool quiet);
  ~LoadProgress();  // clears a bar that an error left behind

  // What it will take, before it is read.
  void plan(const MemoryReport& report);
  // Any thread, one at a time.
  void update(int64_t done_bytes, int64_t total_bytes);
  // The model is ready.
  void finish(const LoadReport& report);

 private:
  void clear();

  std::string name_;
  bool quiet_, bar_, drawn_ = false;
  Stopwatch watch_;
};

}  // namespace pewter
