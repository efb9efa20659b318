// Decode rows of the Gated DeltaNet mixer, and fold.
//
// Split of work: one key head of one sequence per item, its value heads in turn. Bytes: each value
// head's state once, and once more as a store when tape rows were accepted; the rest stays in L2.
// Precision: f32 from the convolution to the gated norm, one rounding at the end. The rows of the
// tape run through the very functions that computed them as new rows, so m rows in one step and m
// steps of one row leave the same bits. Limits: the two passes over a head's state per row.

#include <cstring>

#include "backend/cpu/delta.h"
#include "backend/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/delta_decode.cc"
#include <hwy/foreach_target.h>
//
#include "backend/cpu/delta_inl.h"

HWY_BEFORE_NAMESPACE();
namespace pewter {
namespace HWY_NAMESPACE {

void delta_decode(const DeltaItem& item, const DeltaScratch& scratch) {
  const DeltaView view(item);
  const int64_t accepted = item.accepted, total = accepted + item.rows;
  for (int64_t t = 0; t < total; ++t) {
    make_key(view, t, scratch.k + t * view.pk);
    if (t >= accepted) make_query(view, t, scratch.q + t * view.pk);
  }
  for (int64_t head = view.first_head(); head < view.first_head() + view.repeat; ++head) {
    load_state(view, head, scratch.state);
    for (int64_t t = 0; t < total; ++t) {
      if (t == accepted && accepted > 0) store_state(view, head, scratch.state);
      convolve(view, t, view.v_channel(head), view.dv, scratch.v);
      const float* k = scratch.k + t * view.pk;
      if (t < accepted) {
        recur(view, tape_gates(view, t, head), k, nullptr, scratch.v, scratch.state, nullptr);
        continue;
      }
      const Gates gates = make_gates(view, t - accepted, head);
      recur(view, gates, k, scratch.q + t * view.pk, scratch.v, scratch.state, scratch.o);
      gated_norm(view, t - accepted, head, scratch.o);
    }
    if (item.rows == 0 && accepted > 0) store_state(view, head, scratch.state);
    // The head's tape gates were all read above.
    for (int64_t row = 0; row < item.rows; ++row) {
      const Gates gates = make_gates(view, row, head);
      float* at = tape_gate(view, row, head);
      at[0] = gates.g;
      at[view.args.value_heads] = gates.beta;
    }
  }
  advance_window(view, accepted);
  view.for_channels([&](int64_t channel, int64_t count) {
    for (int64_t row = 0; row < item.rows; ++row)
      std::memcpy(view.tape + row * view.channels + channel,
                  view.in + row * view.in_stride + channel,
                  static_cast<size_t>(count) * sizeof(BFloat16));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace pewter
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pewter {

HWY_EXPORT(delta_decode);
void delta_decode(const DeltaItem& item, const DeltaScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(delta_decode)(item, scratch);
}

DeltaScratch DeltaScratch::lay_out(Arena& arena, const OpsLimits& limits) {
  const int64_t pk = padded_inputs(limits.key_dim), pv = padded_inputs(limits.value_dim);
  static_assert(2 * kMaxDecodeRows <= kDeltaChunk, "tape and new rows share the chunk's rows");
  DeltaScratch s;
  s.state = arena.take<float>(pk * pv);
  s.k = arena.take<float>(kDeltaChunk * pk);
  s.q = arena.take<float>(kDeltaChunk * pk);
  s.v = arena.take<float>(kDeltaChunk * pv);
  s.o = arena.take<float>(kDeltaChunk * pv);
  s.products = arena.take<float>(2 * kDeltaChunk * kDeltaChunk);
  s.weights = arena.take<float>(kDeltaChunk * kDeltaChunk);
  s.scaled_k = arena.take<float>(kDeltaChunk * pk);
  s.key_rows = arena.take<const float*>(2 * kDeltaChunk);
  return s;
}

}  // namespace pewter
#endif
