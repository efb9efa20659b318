// The KV cache: pages of keys and values for every full-attention layer (and the MTP layer), handed
// out by a reference-counted free list on the host. A logical page of a sequence has one physical
// number, the same in all layers and both planes.
#pragma once

#include <vector>

#include "backend/batch.h"
#include "model/model_config.h"

namespace pewter {

class KvCache {
 public:
  struct Format {
    KvFormat keys = KvFormat::kF32, values = KvFormat::kF32;
  };
  // `layers` planes pairs of `pages` pages each. Error: kResourceExhausted, with the sizes.
  static Result<KvCache> make(Device& device, const ModelConfig& config, Format format,
                              int64_t layers, int64_t pages);
  static int64_t page_bytes(const Device& device, const ModelConfig& config, Format format,
                            int64_t layers);

  KvLayer layer(int64_t index) const;
  int64_t layers() const { return static_cast<int64_t>(keys_.size()); }
  int64_t pages() const { return static_cast<int64_t>(references_.size()); }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }

  // A page with one reference, or -1 when none is free. Its old contents are whatever they were.
  int32_t take();
  void retain(int32_t page);
  // Drops a reference; the last one frees the page.
  void release(int32_t page);

 private:
  KvLayer shape_;
  std::vector<Buffer> keys_, values_;  // one of each per layer
  std::vector<int32_t> references_, free_;
};

// Pages that hold this many positions.
constexpr int64_t pages_for(int64_t positions) {
  return (positions + kPageTokens - 1) / kPageTokens;
}

}  // namespace pewter
