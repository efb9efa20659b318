// How much memory this process may still take: the machine's available memory, cut by the cgroup's
// limit.
#pragma once

#include <cstdint>
#include <string>

namespace pewter {

int64_t available_memory_bytes();
// All there is, used or not, within the same limit.
int64_t total_memory_bytes();

// Of the outermost cache this machine's first core sees; 0 when it does not say.
int64_t last_level_cache_bytes();

// "5.62 GB" (decimal units, three significant digits).
std::string format_bytes(double bytes);

}  // namespace pewter
