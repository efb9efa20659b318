// What `pewter bench kernels` prints.
#pragma once

#include "base/json.h"
#include "cli/bench_kernels.h"

namespace pewter {

std::string kernels_text(const KernelResult& result);
Json kernels_json(const KernelResult& result);
std::string kernels_csv(const KernelResult& result);

}  // namespace pewter
