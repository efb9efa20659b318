// The measuring part of `pewter bench drafting`: what drafting by cost (engine/draft_depth.h) comes
// to against plain steps, in turn on one model, with guesses that are right as often as one says. A
// claim about the engine, whatever a text would be.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "cli/bench_run.h"

namespace pewter {

struct DraftingOptions {
  BenchOptions bench;     // rows: a token and the most guesses; tokens: steps of a repeat
  double acceptance = 0;  // of each guess, when those before it were right
};

struct DraftingResult {
  DraftingOptions options;
  std::string device, processors;
  std::vector<double> plain, drafted;  // tokens a second of each repeat
  DraftFigures figures;                // of the drafted repeats
  int64_t steps = 0;                   // of a sequence in them
  // Of drafted and plain repeats that followed each other, the median.
  double gain() const;
};

// Errors: as run_bench.
Result<DraftingResult> run_drafting_bench(const DraftingOptions& options, const BenchHooks& hooks);

std::string drafting_text(const DraftingResult& result);
Json drafting_json(const DraftingResult& result);

}  // namespace pewter
