// Copies of a few bytes between host and device by kernels, which wait for no copy engine: what
// goes to the device travels as a kernel's parameters, what comes back is written into pinned
// memory of the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace pewter::cuda {

inline constexpr size_t kMostSmallBytes = 2048;

// Whether these functions take so many bytes at such a place of the device: whole words.
bool is_small_copy(const void* on_device, size_t bytes);
// Behind all that was enqueued before.
void write_small(cudaStream_t stream, void* to, std::span<const std::byte> from);
// Words of `from` into pinned memory; then *flag, pinned as well, becomes `number`.
void publish_small(cudaStream_t stream, const void* from, void* to, size_t bytes, uint32_t* flag,
                   uint32_t number);

}  // namespace pewter::cuda
