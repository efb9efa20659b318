#include "cli/expert_probe.h"

#include <algorithm>
#include <vector>

namespace pewter {

int64_t count_distinct(Device& device, const TensorView& expert) {
  std::vector<int32_t> chosen(static_cast<size_t>(expert.elements()));
  device.copy_to_host(std::as_writable_bytes(std::span(chosen)), expert.data());
  std::ranges::sort(chosen);
  return std::ranges::unique(chosen).begin() - chosen.begin();
}

}  // namespace pewter
