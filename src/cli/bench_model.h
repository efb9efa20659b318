// The model a bench runs: a checkpoint's, or one of random weights in a named shape.
#pragma once

#include <functional>

#include "backend/factory.h"
#include "cli/bench_run.h"
#include "engine/model_runner.h"

namespace pewter {

struct BenchModel {
  Backend backend;  // outlives the model
  Qwen35Model model;
  Footprint footprint;
  std::shared_ptr<const DflashModel> dflash;  // when it drafts
};

// A repeated layer must not find the last one's weights in a cache: together they are this many
// times as large.
inline constexpr int64_t kCacheMultiple = 8;

// Errors: kInvalidArgument for unknown shapes and too few unique layers; kResourceExhausted with
// the numbers; those of loading. `other_bytes`: what the bench takes beside weights and state.
Result<BenchModel> make_bench_model(const BenchOptions& options, int64_t other_bytes,
                                    const BenchHooks& hooks);

// Positions the caches must hold, and rows of the largest step.
RunnerOptions bench_runner_options(const BenchOptions& options);

}  // namespace pewter
