// The measuring part of `pewter bench`: a model on a backend, what it needs, how fast it ran, and
// what the machine allowed meanwhile.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/factory.h"
#include "cli/step_profile.h"
#include "engine/drafter.h"
#include "model/qwen35/step_bytes.h"

namespace pewter {

enum class BenchKind { kDecode, kPrefill };

struct BenchOptions {
  BenchKind kind = BenchKind::kDecode;
  std::string model;  // a checkpoint; else a shape:
  std::string shape, format = "bf16";
  std::string lm_head = "bf16";  // int8; of a shape also fp8 and int4
  BackendOptions backend;
  int64_t tokens = 0;  // decode: steps of a repeat; prefill: the prompt
  int64_t depth = 0;   // positions before them
  int64_t rows = 1;    // of a sequence in a decode step
  int64_t sequences = 1;
  // Decode: of the rows, so many count on average, as if the others had been wrong guesses; 0: all.
  double forced_tokens = 0;
  // Decode of a checkpoint: who makes a guess for every row but the first, kMtp or kDflash.
  DraftMethod drafts = DraftMethod::kNone;
  std::string drafter;  // directory of kDflash's
  int64_t repeats = 5;
  int64_t unique_layers = 0;  // 0: all
  bool profile = false;       // decode: stage by stage as well

  // Of a sequence.
  double tokens_per_step() const {
    return forced_tokens > 0 ? forced_tokens : static_cast<double>(rows);
  }
};

struct BenchResult {
  BenchOptions options;
  ModelConfig config;
  Footprint footprint;
  std::string device;
  int threads = 0;  // or multiprocessors
  std::string processors;
  std::string_view bandwidth_kind;
  std::vector<double> tokens_per_second;  // of each repeat
  double distinct_experts = 0;            // mean of a layer and step
  // What one token needs: bytes when decoding, operations in a prompt.
  StepBytes step;
  double bytes_per_token = 0, flops_per_token = 0;
  double ceiling_bytes_per_second = 0;  // the best around the repeats
  ArithmeticCeiling arithmetic;
  std::optional<StepProfile> profile;  // when asked for

  double best() const;
  double median() const;
};

struct BenchHooks {
  std::function<void(const std::string& what)> progress;  // a line that replaces the last
};

// Errors: kInvalidArgument for options that make no sense, kResourceExhausted with the numbers for
// what does not fit, those of loading.
Result<BenchResult> run_bench(const BenchOptions& options, const BenchHooks& hooks);

}  // namespace pewter
