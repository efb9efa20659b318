#include "cli/step_profile.h"

#include <algorithm>
#include <set>

#include "cli/expert_probe.h"

namespace pewter {
namespace {

// Data read again and again is found in a cache unless it is well over the cache's size.
constexpr double kCacheMultiple = 2;

std::vector<std::string_view> names_of(const std::vector<StageCall>& all) {
  std::vector<std::string_view> names;
  for (const StageCall& call : all)
    if (std::ranges::find(names, call.stage) == names.end()) names.push_back(call.stage);
  return names;
}

}  // namespace

double StepProfile::stage_seconds() const {
  double sum = 0;
  for (const StageTime& stage : stages) sum += static_cast<double>(stage.calls) * stage.seconds;
  return sum;
}

double StepProfile::bytes() const {
  double sum = 0;
  for (const StageTime& stage : stages) sum += static_cast<double>(stage.calls) * stage.bytes;
  return sum;
}

StepProfile profile_step(const RecordedStep& step, Ops& ops, Device& device, OpTimer& timer,
                         double context, const StageFilter& wanted) {
  StepProfile profile;
  const auto run_all = [&] {
    for (const OpCall& call : step.calls) call(ops);
  };
  if (!wanted) profile.replay_seconds = timer.seconds(run_all);
  const auto time_of = [&](const std::vector<StageCall>& all, std::string_view name) {
    std::vector<const StageCall*> calls;
    for (const StageCall& call : all)
      if (call.stage == name) calls.push_back(&call);
    // Inputs are those of a real step, whatever the last stage did to them again and again.
    run_all();
    for (const OpCall& before : calls[0]->before) before(ops);
    OpLoad load{.context = context};
    if (calls[0]->expert.defined()) {
      calls[0]->run(ops);  // it may be what routes
      load.distinct_experts = static_cast<double>(count_distinct(device, calls[0]->expert));
      profile.distinct_experts = load.distinct_experts;
    }
    const double seconds = timer.seconds([&] {
      for (const StageCall* call : calls) call->run(ops);
    });
    const auto count = static_cast<double>(calls.size());
    StageTime time{.stage = std::string(name),
                   .calls = static_cast<int64_t>(calls.size()),
                   .seconds = seconds / count};
    std::set<const void*> memory;
    for (const StageCall* call : calls) {
      time.bytes += call->bytes(load) / count;
      memory.insert(call->memory);
    }
    time.is_cached = time.bytes * static_cast<double>(memory.size()) <
                     kCacheMultiple * static_cast<double>(device.cache_bytes());
    return time;
  };
  for (const std::string_view name : names_of(step.stages))
    if (!wanted || wanted(name)) profile.stages.push_back(time_of(step.stages, name));
  if (!wanted)
    for (const std::string_view name : names_of(step.blocks))
      profile.blocks.push_back(time_of(step.blocks, name));
  return profile;
}

}  // namespace pewter
