// `pewter bench accept`: real prompts, by family, through every way of drafting: how many tokens a
// step says, how many guesses are right, and how fast it is beside plain decoding.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/bench_run.h"
#include "cli/loaded_model.h"
#include "cli/speculative_config.h"

namespace pewter {

struct AcceptMethod {
  std::string name;  // as asked for: plain, mtp, mtp:3 (a fixed depth)
  DraftOptions draft;
};
// "plain,mtp,dflash:4". Error: kInvalidArgument naming the method.
Result<std::vector<AcceptMethod>> parse_accept_methods(std::string_view list);

struct AcceptPrompt {
  std::string family;
  std::vector<int32_t> ids;
};
// A JSON list of prompts, an object with a list `prompts`, or a line each: objects with `family`
// (or none) and `prompt_ids`, `messages` or the text of one user message, `prompt`. Error:
// kInvalidArgument naming the prompt and the key.
Result<std::vector<AcceptPrompt>> read_accept_prompts(const std::string& text,
                                                      const LoadedModel& model);

struct AcceptOptions {
  ModelOptions model;
  std::string prompts;  // a file
  std::vector<AcceptMethod> methods;
  int64_t max_tokens = 96, repeats = 3;
  int64_t sequences = 1;  // at once
  float temperature = 0;
};

// What a method did with the prompts of a family.
struct AcceptCell {
  int64_t prompts = 0, tokens = 0;  // after the first of each answer, which reading the prompt says
  DraftFigures drafts;
  double seconds = 0;  // of them; the best repeat
  int64_t steps() const { return tokens - drafts.accepted_tokens; }
  double tokens_per_step() const;
  double tokens_per_second() const;
  AcceptCell& operator+=(const AcceptCell& more);
};

struct AcceptResult {
  AcceptOptions options;
  std::string device;
  std::vector<std::string> families;           // in the file's order, and last "all"
  std::vector<std::vector<AcceptCell>> cells;  // [family][method]
};

// Errors: those of loading, of the file, of requests that do not fit.
Result<AcceptResult> run_accept_bench(const AcceptOptions& options, const BenchHooks& hooks);

std::string accept_text(const AcceptResult& result);
std::string accept_csv(const AcceptResult& result);
// A bar for each family and method: tokens a step.
std::string accept_svg(const AcceptResult& result);

}  // namespace pewter
