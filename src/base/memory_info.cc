#include "base/memory_info.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <limits>

namespace pewter {

namespace {

// A line of /proc/meminfo in bytes; without it, no limit.
int64_t meminfo_bytes(const char* format) {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    long long kib = 0;
    if (std::sscanf(line.c_str(), format, &kib) == 1) return kib * 1024;
  }
  return std::numeric_limits<int64_t>::max();
}

bool read_number(const char* path, int64_t& number) {
  std::ifstream file(path);
  return static_cast<bool>(file >> number);  // "max" fails to parse: no limit
}

}  // namespace

int64_t total_memory_bytes() {
  const int64_t total = meminfo_bytes("MemTotal: %lld kB");
  int64_t limit = 0;
  return read_number("/sys/fs/cgroup/memory.max", limit) ? std::min(total, limit) : total;
}

int64_t available_memory_bytes() {
  int64_t available = meminfo_bytes("MemAvailable: %lld kB");
  int64_t limit = 0, used = 0;
  if (read_number("/sys/fs/cgroup/memory.max", limit) &&
      read_number("/sys/fs/cgroup/memory.current", used))
    available = std::min(available, std::max<int64_t>(0, limit - used));
  return available;
}

int64_t last_level_cache_bytes() {
  int64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) +
                       "/size");
    int64_t size = 0;
    char unit = 0;
    if (!(file >> size)) continue;
    file >> unit;
    largest = std::max(largest, size * (unit == 'K' ? 1024 : unit == 'M' ? 1024 * 1024 : 1));
  }
  return largest;
}

std::string format_bytes(double bytes) {
  static constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  std::array<char, 32> text;
  const int digits = unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
  std::snprintf(text.data(), text.size(), "%.*f %s", digits, bytes, kUnits[unit]);
  return text.data();
}

}  // namespace pewter
