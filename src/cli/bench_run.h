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

// How alike the experts are that a step's rows choose.
enum class Routing {
  kUniform,     // random tokens: as if each chose for itself
  kOverlapped,  // cli/overlapped_tokens.h
};

// What drafting took, of the best repeat.
struct DraftCost {
  double seconds = 0;  // a step, the host's part in it
  double bytes = 0;    // a step
  double bytes_per_second() const { return bytes / seconds; }
};

// Seconds of a decode step, median, by what was accepted of the one before: does rolling back cost?
struct RollbackCost {
  int64_t rows = 0;  // accepted of --rows
  double after_part = 0, after_all = 0;
  double extra() const { return after_part / after_all - 1; }
};

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
  // Decode: who makes a guess for every row but the first: kMtp, kDflash or kSuffix.
  DraftMethod drafts = DraftMethod::kNone;
  std::string drafter;                // of a checkpoint: directory of kDflash's
  std::string draft_format = "bf16";  // of a shape: the drafter's matrices
  int64_t draft_head_rows = 0;        // guesses are chosen among so many tokens; 0: all
  Routing routing = Routing::kUniform;
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
  std::optional<StepProfile> profile;    // when asked for
  std::optional<DraftCost> draft;        // with a drafter
  std::optional<RollbackCost> rollback;  // of steps of several rows

  double best() const;
  double step_seconds() const;  // of the best repeat
};

// Of an even number of values the mean of the two in the middle.
double median(std::vector<double> values);

struct BenchHooks {
  std::function<void(const std::string& what)> progress;  // a line that replaces the last
};

// Errors: kInvalidArgument for options that make no sense, kResourceExhausted with the numbers for
// what does not fit, those of loading.
Result<BenchResult> run_bench(const BenchOptions& options, const BenchHooks& hooks);

}  // namespace pewter
