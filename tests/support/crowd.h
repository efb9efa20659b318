// Many requests on one engine: a mixed crowd of them, and what came of each.
#pragma once

#include "engine/engine.h"
#include "support/test_rig.h"

namespace pewter::test {

struct Output {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  Completion completion;
};

// A random model and an engine on it.
struct CrowdRig {
  Backend backend;
  Qwen35Model model;
  std::unique_ptr<Engine> engine;

  CrowdRig(const RigCase& rig_case, const EngineOptions& options);
  Output run(const Request& request);  // to its end
  bool returned_everything();
};

// Reads a stream to its end.
Output read_all(TokenStream& stream);

// Polls until the engine holds nothing.
bool becomes_idle(const Engine& engine);

// Lengths, sampling, penalties and stops differ; a pure function of the seed.
std::vector<Request> crowd(const RigCase& rig_case, int count, uint64_t seed);

}  // namespace pewter::test
