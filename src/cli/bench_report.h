// What `pewter bench` prints.
#pragma once

#include "base/json.h"
#include "cli/bench_run.h"

namespace pewter {

std::string bench_text(const BenchResult& result);
Json bench_json(const BenchResult& result);

}  // namespace pewter
