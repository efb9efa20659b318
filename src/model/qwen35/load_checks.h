// Values that are legal and look like another program's file: warnings, never faults.
#pragma once

#include <span>

#include "model/qwen35/load_plan.h"

namespace pewter {

// floats: the plan's vectors one after another, stored_elements() each.
void check_plausible(const LoadPlan& plan, std::span<const float> floats, Findings& findings);

}  // namespace pewter
