#include "ops/attention_rig.h"

#include "backend/cpu/kv_plane.h"

namespace pewter::test {

AttentionRig::AttentionRig(Ops& ops, const AttentionShape& shape, int64_t physical_pages,
                           int64_t logical_pages)
    : ops_(ops),
      shape_(shape),
      in_(random_values(kTableRows * shape.in_width(), 1)),
      q_(random_values(kTableRows * shape.q_width(), 2)),
      q_norm_(random_values(shape.head_dim, 3, 0.1f)),
      k_norm_(random_values(shape.head_dim, 4, 0.1f)) {
  const int64_t half = shape.rotary_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    frequency_.push_back(
        static_cast<float>(std::pow(1e7, -static_cast<double>(i) / static_cast<double>(half))));
    axis_.push_back(static_cast<int32_t>(i % 3));
  }
  // Physical pages in a scrambled order; the last logical one is a page of its own.
  for (int64_t i = 0; i < logical_pages; ++i)
    pages_.push_back(static_cast<int32_t>(i + 1 < logical_pages ? (i * 7 + 3) % (physical_pages - 1)
                                                                : physical_pages - 1));
  const int64_t page = shape.kv_heads * kPageTokens * shape.head_dim, count = physical_pages * page;
  // Keys of the last page are four times as large, so that a long context cannot hide it.
  Floats keys = random_values(count, 5);
  for (auto k = keys.end() - page; k != keys.end(); ++k) *k *= 4;
  keys_ =
      Tensor::of(DType::kBF16, {physical_pages, shape.kv_heads, kPageTokens, shape.head_dim}, keys);
  if (panels()) {  // the same keys as the fast CPU path stores them
    const Tensor plain = std::exchange(
        keys_,
        Tensor::zeros(DType::kBF16, {physical_pages, shape.kv_heads, kPageTokens, shape.head_dim}));
    for (int64_t p = 0; p < physical_pages; ++p)
      for (int64_t h = 0; h < shape.kv_heads; ++h)
        for (int64_t t = 0; t < kPageTokens; ++t)
          KvPlane::store_key(plain.view[p][h][t].data_as<BFloat16>(), shape.head_dim,
                             keys_.view[p][h].data_as<BFloat16>(), t);
  }
  values_ = Tensor::of(DType::kBF16, {physical_pages, shape.kv_heads, kPageTokens, shape.head_dim},
                       random_values(count, 6));
}

KvLayer AttentionRig::kv() const {
  const int64_t page_bytes = shape_.kv_heads * kPageTokens * shape_.head_dim * 2;
  return {.key_format = KvFormat::kBF16,
          .value_format = KvFormat::kBF16,
          .keys = keys_.view.data(),
          .values = values_.view.data(),
          .key_page_bytes = page_bytes,
          .value_page_bytes = page_bytes,
          .kv_heads = shape_.kv_heads,
          .head_dim = shape_.head_dim};
}

Floats AttentionRig::key(int64_t position, int64_t head) const {
  if (!panels()) return vector(keys_, position, head);
  const int64_t page = pages_[static_cast<size_t>(position / kPageTokens)];
  const auto* block = keys_.view[page][head].data_as<BFloat16>();
  const int64_t at = position % kPageTokens, d = shape_.head_dim;
  Floats out(static_cast<size_t>(d));
  for (int64_t i = 0; i < d; ++i)  // panels of 16 positions, two dimensions side by side
    out[static_cast<size_t>(i)] =
        to_float(block[at / 16 * 16 * d + i / 2 * 32 + at % 16 * 2 + i % 2]);
  return out;
}

Floats AttentionRig::vector(const Tensor& plane, int64_t position, int64_t head) const {
  const int64_t page = pages_[static_cast<size_t>(position / kPageTokens)];
  const TensorView view = plane.view[page][head][position % kPageTokens];
  Floats out(static_cast<size_t>(shape_.head_dim));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = load_float(view.data(), view.dtype(), static_cast<int64_t>(i));
  return out;
}

template <typename Run>
void AttentionRig::with_batch(Phase phase, const std::vector<Part>& parts, const Run& run) {
  const auto pages = static_cast<int64_t>(pages_.size());
  std::vector<int32_t> begin = {0}, context, sequence, positions, delta, table;
  Floats in, q;
  for (const Part& part : parts) {
    CHECK(part.context + part.rows <= pages * kPageTokens, "context beyond the pages");
    begin.push_back(begin.back() + static_cast<int32_t>(part.rows));
    context.push_back(static_cast<int32_t>(part.context));
    delta.push_back(static_cast<int32_t>(part.position_delta));
    table.insert(table.end(), pages_.begin(), pages_.end());
    for (int64_t r = 0; r < part.rows; ++r) {
      sequence.push_back(static_cast<int32_t>(context.size() - 1));
      for (int64_t axis = 0; axis < 3; ++axis)
        positions.push_back(static_cast<int32_t>(part.context + r + axis));
    }
    in.insert(in.end(), this->in(part.first), this->in(part.first + part.rows));
    q.insert(q.end(), this->q(part.first), this->q(part.first + part.rows));
  }
  const Batch batch{.phase = phase,
                    .rows = begin.back(),
                    .sequences = static_cast<int64_t>(parts.size()),
                    .page_table_stride = pages,
                    .positions = positions.data(),
                    .position_delta = delta.data(),
                    .row_sequence = sequence.data(),
                    .row_begin = begin.data(),
                    .context_length = context.data(),
                    .page_table = table.data()};
  const DType act = ops_.activation_dtype();
  const Tensor in_tensor = Tensor::of(act, {batch.rows, shape_.in_width()}, in);
  const Tensor q_tensor = Tensor::of(act, {batch.rows, shape_.q_width()}, q);
  run(batch, in_tensor, q_tensor);
}

Floats AttentionRig::attend(Phase phase, const std::vector<Part>& parts, int64_t window) {
  Floats result;
  with_batch(phase, parts, [&](const Batch& batch, const Tensor& in, const Tensor& q) {
    const Tensor out = Tensor::zeros(ops_.activation_dtype(), {batch.rows, shape_.q_width()});
    const AttentionArgs call{.batch = batch,
                             .q = q.view,
                             .in = in.view,
                             .query_heads = shape_.query_heads,
                             .kv_heads = shape_.kv_heads,
                             .head_dim = shape_.head_dim,
                             .kv = kv(),
                             .out = out.view,
                             .window = window};
    run_ops(ops_, [&] { ops_.attention(call); });
    result = out.floats();
  });
  return result;
}

Floats AttentionRig::prepare(Phase phase, const std::vector<Part>& parts) {
  Floats result;
  with_batch(phase, parts, [&](const Batch& batch, const Tensor& in, const Tensor& q) {
    const int64_t d = shape_.head_dim, half = shape_.rotary_dim / 2;
    const Tensor q_norm = Tensor::of(DType::kF32, {d}, q_norm_),
                 k_norm = Tensor::of(DType::kF32, {d}, k_norm_),
                 frequency = Tensor::of(DType::kF32, {half}, frequency_);
    const AttentionPrepareArgs call{.batch = batch,
                                    .in = in.view,
                                    .q_norm = q_norm.view,
                                    .k_norm = k_norm.view,
                                    .epsilon = 1e-6f,
                                    .query_heads = shape_.query_heads,
                                    .kv_heads = shape_.kv_heads,
                                    .head_dim = d,
                                    .rotary_dim = shape_.rotary_dim,
                                    .inverse_frequency = frequency.view,
                                    .axis = axis_.data(),
                                    .kv = kv(),
                                    .q = q.view};
    run_ops(ops_, [&] { ops_.attention_prepare(call); });
    result = q.floats();
  });
  return result;
}

}  // namespace pewter::test
