#include "backend/factory.h"

#include "backend/cpu/cpu_ceilings.h"
#include "backend/cpu/cpu_device.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/reference/reference_ops.h"
#ifdef PEWTER_CUDA
#include "backend/cuda/cuda_ceilings.h"
#include "backend/cuda/cuda_ops.h"
#endif

namespace pewter {
namespace {

#ifdef PEWTER_CUDA
constexpr std::string_view kNames[] = {"cpu-reference", "cpu", "cuda"};

Result<Backend> make_cuda() {
  TRY_ASSIGN(std::shared_ptr<CudaDevice> device, CudaDevice::make());
  Backend backend;
  backend.name = "cuda";
  backend.device = device;
  backend.ops = std::make_unique<CudaOps>(std::move(device));
  return backend;
}
#else
constexpr std::string_view kNames[] = {"cpu-reference", "cpu"};

Result<Backend> make_cuda() {
  return Error{ErrorCode::kUnavailable, "device: this program was built without CUDA"};
}
#endif

}  // namespace

std::span<const std::string_view> backend_names() { return kNames; }

Result<Backend> make_backend(const BackendOptions& options) {
  Backend backend;
  if (options.threads < 0)
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("threads: ", options.threads, " is negative")};
  if (options.device == "cuda") return make_cuda();
  if (options.device == "auto")
    if (Result<Backend> cuda = make_cuda()) return cuda;
  if (options.device == "cpu" || options.device == "auto") {
    backend.name = "cpu";
    backend.device = std::make_shared<CpuDevice>(CpuDevice::Layout::kPanels);
    backend.ops = std::make_unique<CpuOps>(options.threads);
    return backend;
  }
  if (options.device == "cpu-reference") {
    backend.name = options.device;
    backend.device = std::make_shared<CpuDevice>(CpuDevice::Layout::kCanonical);
    backend.ops = std::make_unique<ReferenceOps>();
    return backend;
  }
  return Error{ErrorCode::kInvalidArgument,
               "device: \"" + options.device + "\" is none of auto, cuda, cpu, cpu-reference"};
}

Result<std::unique_ptr<Ceilings>> make_ceilings(const BackendOptions& options) {
  TRY_ASSIGN(const Backend backend, make_backend({.device = options.device, .threads = 1}));
#ifdef PEWTER_CUDA
  if (backend.name == "cuda")
    return CudaCeilings::make(std::static_pointer_cast<CudaDevice>(backend.device));
#endif
  // The reference computes on one thread, whatever it was given.
  const int threads = backend.name == "cpu-reference" ? 1 : options.threads;
  return std::unique_ptr<Ceilings>(std::make_unique<CpuCeilings>(threads));
}

}  // namespace pewter
