// The one place that names the leaves cpu/ and cuda/. Only cli/, tests and benches call it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/ceilings.h"
#include "backend/ops.h"

namespace pewter {

struct Backend {
  std::string name;                // "cuda", "cpu", "cpu-reference"
  std::shared_ptr<Device> device;  // outlives what it allocated
  std::unique_ptr<Ops> ops;
};

struct BackendOptions {
  std::string device = "auto";  // auto (cuda where there is one) | cuda | cpu | cpu-reference
  int threads = 0;              // 0: all this process may use
};

// Backends this program was built with, by name.
std::span<const std::string_view> backend_names();

// Errors: kInvalidArgument for an unknown device, naming the known ones; kUnavailable
// for cuda without a GPU, or in a program built without it.
Result<Backend> make_backend(const BackendOptions& options);

// What the machine allows such a backend. Errors: as make_backend.
Result<std::unique_ptr<Ceilings>> make_ceilings(const BackendOptions& options);

}  // namespace pewter
