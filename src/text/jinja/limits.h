// What one rendering may spend. A template is data of the model's author and its inputs are the
// client's, so both may be hostile: every limit ends in an error, never in a crash or a long wait.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace pewter::jinja {

struct RenderLimits {
  int64_t max_steps = 50'000'000;  // nodes evaluated, items visited, bytes / 64 scanned
  int64_t max_output_bytes = int64_t{64} << 20;  // of the output, and of every string on the way
  int64_t max_memory_bytes = int64_t{1} << 30;   // of all values made, also those dropped again
  int max_depth = 400;        // of macro calls, loops and expressions inside one another
  int max_value_depth = 300;  // of lists inside lists
};

class Budget {
 public:
  explicit Budget(const RenderLimits& limits) : limits_(limits) {}

  const RenderLimits& limits() const { return limits_; }

  Status spend_steps(int64_t steps) {
    steps_ += steps;
    if (steps_ > limits_.max_steps)
      return Error{ErrorCode::kResourceExhausted,
                   str_cat("takes more than ", limits_.max_steps, " steps")};
    return {};
  }
  // For work that reads bytes: a search, a comparison.
  Status spend_scan(size_t bytes) { return spend_steps(1 + static_cast<int64_t>(bytes / 64)); }

  Status spend_memory(int64_t bytes) {
    memory_bytes_ += bytes;
    if (memory_bytes_ > limits_.max_memory_bytes)
      return Error{ErrorCode::kResourceExhausted,
                   str_cat("needs more than ", limits_.max_memory_bytes, " bytes of memory")};
    return spend_scan(static_cast<size_t>(bytes));
  }

  Error too_long() const {
    return Error{ErrorCode::kResourceExhausted,
                 str_cat("makes a text longer than ", limits_.max_output_bytes, " bytes")};
  }
  Error too_deep() const { return Error{ErrorCode::kResourceExhausted, "nests values too deeply"}; }

 private:
  const RenderLimits limits_;
  int64_t steps_ = 0;
  int64_t memory_bytes_ = 0;
};

}  // namespace pewter::jinja
