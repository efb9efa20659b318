#include "cli/expert_probe.h"

#include <algorithm>
#include <vector>

namespace pewter {

void ExpertProbe::count(const TensorView& expert) {
  std::vector<int32_t> chosen(static_cast<size_t>(expert.elements()));
  device_.copy_to_host(std::as_writable_bytes(std::span(chosen)), expert.data());
  std::ranges::sort(chosen);
  distinct_ += std::ranges::unique(chosen).begin() - chosen.begin();
  ++layers_;
}

}  // namespace pewter
