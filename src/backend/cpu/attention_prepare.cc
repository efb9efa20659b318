// Norms and rotary embedding of q and k, and the cache's new entries.
//
// Split of work: one row per item. Bytes: the row of projections once, q, and one position of the
// cache. Precision: f32 from the projection to q and the cache, which round to bf16 once; angles
// are f32 products, their sine and cosine are computed in double, so positions up to 262,143 keep
// every bit the product has. Limits: the sines, for one row.

#include <cmath>

#include "backend/cpu/attention.h"
#include "backend/cpu/kv_plane.h"
#include "backend/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention_prepare.cc"
#include <hwy/foreach_target.h>
//
#include "backend/cpu/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace pewter {
namespace HWY_NAMESPACE {

// out = rotate(x / √(mean(x²) + ε) · (1 + w)): dims i and i + half turn by angle i; the rest pass.
void prepare_head(const BFloat16* x, const float* w, float epsilon, int64_t n, const float* cosine,
                  const float* sine, int64_t half, float* head, BFloat16* out) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  const V scale = hn::Set(D(), 1.0f / std::sqrt(mean + epsilon)), one = hn::Set(D(), 1.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const V factor = hn::Add(one, load(w + i, n - i));
    store(hn::Mul(hn::Mul(load(x + i, n - i), scale), factor), head + i, n - i);
  }
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t left = half - i;
    const V a = load(head + i, left), b = load(head + half + i, left);
    const V c = load(cosine + i, left), s = load(sine + i, left);
    store(hn::NegMulAdd(b, s, hn::Mul(a, c)), head + i, left);
    store(hn::MulAdd(a, s, hn::Mul(b, c)), head + half + i, left);
  }
  for (int64_t i = 0; i < n; i += kLanes) store(load(head + i, n - i), out + i, n - i);
}

}  // namespace HWY_NAMESPACE
}  // namespace pewter
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pewter {

HWY_EXPORT(prepare_head);

void attention_prepare_row(const AttentionPrepareArgs& args, int64_t row,
                           const AttentionScratch& scratch) {
  const Batch& batch = args.batch;
  const int64_t d = args.head_dim, half = args.rotary_dim / 2;
  const int32_t sequence = batch.row_sequence[row];
  float* cosine = scratch.angles;
  float* sine = cosine + d;
  for (int64_t i = 0; i < half; ++i) {
    const int32_t position =
        batch.positions[3 * row + args.axis[i]] + batch.position_delta[sequence];
    const float angle = static_cast<float>(position) * args.inverse_frequency.data_as<float>()[i];
    cosine[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
    sine[i] = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
  const auto prepare = [&](const BFloat16* x, const TensorView& norm, BFloat16* out) {
    HWY_DYNAMIC_DISPATCH(prepare_head)
    (x, norm.data_as<float>(), args.epsilon, d, cosine, sine, half, scratch.q, out);
  };

  const auto* in = args.in[row].data_as<BFloat16>();
  auto* q = args.q[row].data_as<BFloat16>();
  for (int64_t h = 0; h < args.query_heads; ++h) prepare(in + h * 2 * d, args.q_norm, q + h * d);

  const int64_t position = batch.context_length[sequence] + row - batch.row_begin[sequence];
  const int64_t page =
      batch.page_table[sequence * batch.page_table_stride + position / kPageTokens];
  const BFloat16* k = in + args.query_heads * 2 * d;
  const BFloat16* v = k + args.kv_heads * d;
  for (int64_t h = 0; h < args.kv_heads; ++h) {
    const int64_t offset = position % kPageTokens * d;
    prepare(k + h * d, args.k_norm, scratch.key);
    KvPlane::store_key(scratch.key, d, KvPlane::keys(args.kv).block(page, h),
                       position % kPageTokens);
    std::memcpy(KvPlane::values(args.kv).block(page, h) + offset, v + h * d,
                static_cast<size_t>(d) * sizeof(BFloat16));
  }
}

}  // namespace pewter
#endif
