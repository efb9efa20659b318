// A decode step stage by stage, as a table, as JSON and as CSV.
#pragma once

#include "base/json.h"
#include "cli/bench_run.h"

namespace pewter {

// All of a result that has a profile.
std::string profile_text(const BenchResult& result);
Json profile_json(const BenchResult& result);
// A line for each stage, then "replayed" and "step"; under a header.
std::string profile_csv(const BenchResult& result);

// What of the step's time its stages by themselves do not come to, in seconds: what the host does
// and gaps between kernels, less what overlaps within a step. May be negative.
double unexplained_seconds(const StepProfile& profile);

// Four significant digits, about.
std::string rate(double value);
// A stage's name in words, starred when what it reads may lie in a cache; `starred` is set then.
std::string stage_label(const StageTime& stage, bool& starred);
// What the star says, a line of its own under a table.
inline constexpr const char* kStarNote = "  * so small that some of it is found in a cache\n";

}  // namespace pewter
