// The measuring part of `pewter bench kernels`: ops by themselves, at the sizes of models.
//
//   products   x·Wᵀ added to the residual stream, in every format, on as many copies of the matrix
//              as are many times the cache
//   stages     of a decode step of a random model with few layers (step_profile.h): experts, the
//              delta rule, attention at some depths, the router, sampling
#pragma once

#include "cli/bench_run.h"

namespace pewter {

struct KernelOptions {
  BackendOptions backend;
  std::vector<std::string> shapes = {"qwen3.5-122b", "qwen3.5-35b", "qwen3.5-27b"};
  std::vector<int64_t> rows = {1, 2, 4, 8, 16};  // of one sequence
  std::vector<int64_t> depths = {1024, 32768};   // positions before a stage's rows
  std::string only;                              // ops whose names contain it
  std::string format;                            // of products; empty: all, and stages too
};

struct KernelTime {
  StageTime time;  // of a call
  std::string shape, format;
  int64_t n = 0, k = 0;  // products; 0: a stage
  int64_t rows = 0;
  int64_t depth = 0;            // of stages
  double distinct_experts = 0;  // of the experts' stages
};

struct KernelResult {
  std::string device, processors;
  double read_bytes_per_second = 0, copy_bytes_per_second = 0;  // the machine's
  std::vector<KernelTime> kernels;
};

// Errors: kInvalidArgument for unknown shapes and formats, depths beyond a model's positions, and
// when `only` leaves nothing; kResourceExhausted with the numbers.
Result<KernelResult> run_kernel_bench(const KernelOptions& options, const BenchHooks& hooks);

}  // namespace pewter
