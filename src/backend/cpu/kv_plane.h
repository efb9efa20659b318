// Where one position's vector of one KV head lies in a bf16 plane of the paged cache. Values lie
// position by position; keys as panels of 16 positions (panel.h), so that scores are projections.
#pragma once

#include <cstring>

#include "backend/batch.h"
#include "backend/cpu/panel.h"

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

  // Writes one position's key into its block.
  static void store_key(const BFloat16* key, int64_t head_dim, BFloat16* block, int64_t position) {
    BFloat16* to =
        block + position / kPanelOutputs * kPanelOutputs * head_dim + position % kPanelOutputs * 2;
    for (int64_t i = 0; i < head_dim; i += 2, to += 2 * kPanelOutputs)
      std::memcpy(to, key + i, 2 * sizeof(BFloat16));
  }
};

inline void check_kv_bf16(const KvLayer& kv) {
  CHECK(kv.key_format == KvFormat::kBF16 && kv.value_format == KvFormat::kBF16,
        "the fast CPU path reads bf16 keys and values");
  CHECK(kv.head_dim % 2 == 0, "heads of ", kv.head_dim, " dimensions");
}

}  // namespace pewter
