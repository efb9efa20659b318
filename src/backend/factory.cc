#include "backend/factory.h"

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/reference/reference_ops.h"

namespace pewter {

Result<Backend> make_backend(const BackendOptions& options) {
  Backend backend;
  if (options.threads < 0)
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("threads: ", options.threads, " is negative")};
  if (options.device == "cpu" || options.device == "auto") {
    backend.name = "cpu";
    backend.device = std::make_shared<CpuDevice>();
    backend.ops = std::make_unique<CpuOps>(options.threads);
    return backend;
  }
  if (options.device == "cpu-reference") {
    backend.name = options.device;
    backend.device = std::make_shared<CpuDevice>();
    backend.ops = std::make_unique<ReferenceOps>();
    return backend;
  }
  return Error{ErrorCode::kInvalidArgument,
               "device: \"" + options.device + "\" is none of auto, cpu, cpu-reference"};
}

}  // namespace pewter
