// The sample op on the host, shared by every CPU Ops. Order: bias and mask, penalties, temperature,
// min-p, top-k, top-p, then one draw that is a pure function of (seed, index).
#pragma once

#include <vector>

#include "backend/ops.h"

namespace pewter {

// Sizes the scratch of sample_rows once, so that sampling allocates nothing.
class HostSampler {
 public:
  void reserve(int64_t vocab);
  static int64_t reserved_bytes(int64_t vocab) {
    return vocab * static_cast<int64_t>(sizeof(Candidate) + sizeof(double));
  }
  void sample(const SampleArgs& args);

 private:
  struct Candidate {
    float logit;
    int32_t token;
  };
  void sample_row(const SampleArgs& args, int64_t row);
  void write_top_logprobs(const SampleArgs& args, int64_t row, double log_total);

  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

}  // namespace pewter
