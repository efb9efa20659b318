#include "model/kv_cache.h"

namespace pewter {

int64_t KvCache::page_bytes(const Device& device, const ModelConfig& config, Format format,
                            int64_t layers) {
  return layers * (device.kv_page_bytes(format.keys, config.kv_heads, config.head_dim) +
                   device.kv_page_bytes(format.values, config.kv_heads, config.head_dim));
}

Result<KvCache> KvCache::make(Device& device, const ModelConfig& config, Format format,
                              int64_t layers, int64_t pages) {
  KvCache cache;
  cache.shape_ = {
      .key_format = format.keys,
      .value_format = format.values,
      .key_page_bytes = device.kv_page_bytes(format.keys, config.kv_heads, config.head_dim),
      .value_page_bytes = device.kv_page_bytes(format.values, config.kv_heads, config.head_dim),
      .kv_heads = config.kv_heads,
      .head_dim = config.head_dim};
  for (int64_t i = 0; i < layers; ++i) {
    TRY_ASSIGN(Buffer keys, device.allocate(pages * cache.shape_.key_page_bytes));
    TRY_ASSIGN(Buffer values, device.allocate(pages * cache.shape_.value_page_bytes));
    cache.keys_.push_back(std::move(keys));
    cache.values_.push_back(std::move(values));
  }
  cache.references_.assign(static_cast<size_t>(pages), 0);
  for (int64_t page = pages - 1; page >= 0; --page)
    cache.free_.push_back(static_cast<int32_t>(page));
  return cache;
}

KvLayer KvCache::layer(int64_t index) const {
  KvLayer layer = shape_;
  layer.keys = keys_[static_cast<size_t>(index)].data();
  layer.values = values_[static_cast<size_t>(index)].data();
  return layer;
}

int32_t KvCache::take() {
  if (free_.empty()) return -1;
  const int32_t page = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void KvCache::retain(int32_t page) {
  CHECK(references_[static_cast<size_t>(page)] > 0, "page ", page, " is free");
  ++references_[static_cast<size_t>(page)];
}

void KvCache::release(int32_t page) {
  int32_t& count = references_[static_cast<size_t>(page)];
  CHECK(count > 0, "page ", page, " is free");
  if (--count == 0) free_.push_back(page);
}

}  // namespace pewter
