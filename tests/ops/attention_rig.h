// One attention layer on some Ops: paged bf16 planes filled with seeded keys and values, so that
// the reference and the fast path read the very same cache.
#pragma once

#include "ops/op_rig.h"

namespace pewter::test {

struct AttentionShape {
  std::string name;
  int64_t query_heads, kv_heads, head_dim, rotary_dim;

  int64_t in_width() const { return (2 * query_heads + 2 * kv_heads) * head_dim; }
  int64_t q_width() const { return query_heads * head_dim; }
};

class AttentionRig {
 public:
  // Logical pages repeat the physical ones; only the last one has a page of its own, with keys four
  // times as large. With fewer than 16 physical pages, logical ones may all be one.
  AttentionRig(Ops& ops, const AttentionShape& shape, int64_t physical_pages,
               int64_t logical_pages);

  // One sequence of a step: its rows stand behind `context` committed positions.
  struct Part {
    int64_t context = 0, first = 0, rows = 1;  // first: of the seeded tables of inputs and queries
    int64_t position_delta = 0;
  };
  // Outputs of `attention` over the cache as it is, rows of all parts.
  Floats attend(Phase phase, const std::vector<Part>& parts, int64_t window = 0);
  // q of `attention_prepare`; writes the rows' keys and values.
  Floats prepare(Phase phase, const std::vector<Part>& parts);

  // A key or value of one position and head, as floats.
  Floats key(int64_t position, int64_t head) const;
  Floats value(int64_t position, int64_t head) const { return vector(values_, position, head); }
  // Row r of the input tables, as floats.
  const float* in(int64_t row) const { return in_.data() + row * shape_.in_width(); }
  const float* q(int64_t row) const { return q_.data() + row * shape_.q_width(); }
  const Floats& q_norm() const { return q_norm_; }
  const Floats& frequency() const { return frequency_; }

  static constexpr int64_t kTableRows = 160;

 private:
  template <typename Run>
  void with_batch(Phase phase, const std::vector<Part>& parts, const Run& run);
  Floats vector(const Tensor& plane, int64_t position, int64_t head) const;
  KvLayer kv() const;
  // Whether keys lie as the fast CPU path stores them; the GPU has them as they come.
  bool panels() const { return is_fast_cpu(ops_); }

  Ops& ops_;
  AttentionShape shape_;
  Floats in_, q_, q_norm_, k_norm_, frequency_;
  std::vector<int32_t> axis_, pages_;
  Tensor keys_, values_;  // [physical pages, kv_heads, kPageTokens, head_dim] bf16
};

}  // namespace pewter::test
