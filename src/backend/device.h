// Device: where weights, state and activations live, and how bytes get there. Everything that
// allocates is here, so that ops never do.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "backend/row_uploader.h"
#include "tensor/random_rows.h"

namespace pewter {

// How one plane (keys or values) of the cache is stored. Only the backend knows its bytes.
enum class KvFormat : uint8_t { kF32, kBF16 };

// Positions a page of the KV cache holds.
inline constexpr int64_t kPageTokens = 64;

enum class MemoryKind : uint8_t {
  kHost,     // the CPU's own
  kDevice,   // a GPU's
  kUnified,  // of a GPU that shares the host's
};
struct DeviceMemory {
  int64_t total = 0, free = 0;  // bytes
  MemoryKind kind = MemoryKind::kHost;
};

// A copy to the host on its way: a backend's own.
struct HostCopy {
  std::span<std::byte> to;
  int place = -1;  // where the backend has it meanwhile; -1: `to` has it
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const = 0;
  virtual DeviceMemory memory() const = 0;
  // What may still be allocated here, in bytes.
  int64_t available_bytes() const { return memory().free; }
  // Of its last-level cache; 0 when it does not say.
  virtual int64_t cache_bytes() const = 0;
  // Zeroed memory. Error: kResourceExhausted, with the size.
  virtual Result<Buffer> allocate(int64_t bytes) = 0;
  virtual void copy_to_device(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void copy_to_host(std::span<std::byte> to, const std::byte* from) = 0;
  // The same without waiting: `to` has it after finish(), before which it must live, and for which
  // a copy that was begun must be given. Here it has it at once.
  virtual HostCopy begin_copy_to_host(std::span<std::byte> to, const std::byte* from) {
    copy_to_host(to, from);
    return {};
  }
  virtual void finish(const HostCopy& copy) { (void)copy; }
  // Whether what is enqueued runs while the caller goes on, so that a step can be enqueued before
  // the choices of the one before it are read.
  virtual bool is_asynchronous() const { return false; }
  virtual void zero(std::byte* at, int64_t bytes) = 0;

  // Memory for a matrix in the layout this backend's kernels read; store_rows fills it.
  virtual Result<WeightMatrix> make_weight(const WeightSpec& spec) = 0;
  // Stores canonical rows (rows.n of them, rows.count == 1, same format as w) as rows row_begin …
  // of matrix `index` of w. row_begin is a multiple of 128. Calls for disjoint rows may come from
  // several threads.
  virtual void store_rows(WeightMatrix& w, int64_t index, int64_t row_begin,
                          const WeightMatrix& rows) = 0;
  // For a load of many rows; the device outlives it. Here it stores them at once.
  virtual std::unique_ptr<RowUploader> make_row_uploader();
  // Stores pseudo-random rows in the same place. Made on the host here; a backend may make them
  // where they lie, of the same bits. Error: kResourceExhausted.
  virtual Status store_random_rows(WeightMatrix& w, int64_t index, int64_t row_begin,
                                   const RandomRows& random);
  // Bytes make_weight would allocate (layouts may pad).
  virtual int64_t stored_weight_bytes(const WeightSpec& spec) const = 0;

  // Does what `enqueue` enqueues. Steps of one owner and key enqueue the same work on the same
  // addresses, so a backend may record it and replay the recording instead.
  virtual void run_step(const void* owner, uint64_t key, const std::function<void()>& enqueue) {
    (void)owner, (void)key;
    enqueue();
  }
  // Bytes an owner's recordings may come to, beside those of its model's steps such of so many
  // passes of a drafter's layer.
  virtual int64_t recorded_bytes(int64_t passes) const {
    (void)passes;
    return 0;
  }
  // The owner's addresses end: its recordings are forgotten.
  virtual void forget_steps(const void* owner) { (void)owner; }

  // Bytes of one page of one plane: kv_heads × kPageTokens × head_dim elements and what the format
  // adds.
  virtual int64_t kv_page_bytes(KvFormat format, int64_t kv_heads, int64_t head_dim) const = 0;
};

}  // namespace pewter
