// Where a decode step's time goes: every kind of stage of a recorded step, run by itself for every
// layer in turn.
#pragma once

#include <string>
#include <vector>

#include "cli/op_timer.h"
#include "cli/step_recorder.h"

namespace pewter {

struct StageTime {
  std::string stage;
  int64_t calls = 0;              // a step
  double seconds = 0, bytes = 0;  // of one call, the mean over layers
  bool is_cached = false;         // what all calls read is small enough to stay in a cache
  double bytes_per_second() const { return seconds > 0 ? bytes / seconds : 0; }
};

struct StepProfile {
  std::vector<StageTime> stages;  // in the order of their first calls
  std::vector<StageTime> blocks;  // of these stages, as a step runs them; with a filter none
  double distinct_experts = 0;    // that the stages read; 0: none
  double replay_seconds = 0;      // of all calls of the step in their order, without the host
  double step_seconds = 0;        // of a whole step with all the host does: filled in by the bench
  double stage_seconds() const;   // of the stages by themselves, all calls
  double bytes() const;           // of the step
};

using StageFilter = std::function<bool(std::string_view stage)>;

// `context`: committed positions of a sequence in the recorded step, mean. With a filter only those
// stages are timed, and no whole step. Steps that follow find state and activations changed, but
// finite.
StepProfile profile_step(const RecordedStep& step, Ops& ops, Device& device, OpTimer& timer,
                         double context, const StageFilter& wanted = {});

}  // namespace pewter
