// Where one position's vector of one KV head lies in a bf16 plane of the paged cache.
#pragma once

#include "backend/batch.h"

namespace pewter {

struct KvPlane {
  std::byte* base = nullptr;
  int64_t page_bytes = 0, head_dim = 0;

  static KvPlane keys(const KvLayer& kv) { return {kv.keys, kv.key_page_bytes, kv.head_dim}; }
  static KvPlane values(const KvLayer& kv) { return {kv.values, kv.value_page_bytes, kv.head_dim}; }

  // The [kPageTokens, head_dim] block of one physical page.
  BFloat16* block(int64_t page, int64_t head) const {
    return reinterpret_cast<BFloat16*>(base + page * page_bytes) + head * kPageTokens * head_dim;
  }
};

inline void check_kv_bf16(const KvLayer& kv) {
  CHECK(kv.key_format == KvFormat::kBF16 && kv.value_format == KvFormat::kBF16,
        "the fast CPU path reads bf16 keys and values");
}

}  // namespace pewter
