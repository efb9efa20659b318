// Decode rows of the Gated DeltaNet mixer, and fold.
//
// Split of work: one key head of one sequence per item, its value heads in turn. Bytes: each value
// head's state once from memory; when tape rows were accepted, once more from L2 and once written.
// With S the state before a row, its prediction Sᵀk and Sᵀq come from one pass, its output is
// e^g Sᵀq + (k·q) d, and its update is left to the next row's pass. So a plain decode step makes
// two passes: one for the tape row's prediction, one that applies it and serves the new row.
// Precision: f32 from the convolution to the gated norm, one rounding at the end. The rows of the
// tape run through the very functions that computed them as new rows, so m rows in one step and m
// steps of one row leave the same bits. Limits: memory (26 of 28 GB/s measured).

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
  make_keys(view, 0, total, scratch.k);
  make_queries(view, accepted, item.rows, scratch.q + accepted * view.pk);
  for (int64_t head = view.first_head(); head < view.first_head() + view.repeat; ++head) {
    if (item.rows == 0) {
      apply_tape(view, head, scratch);
      continue;
    }
    // The pass that applies the last accepted row commits; later ones stay in scratch, and the last
    // row's is left to the next step.
    float* const committed = view.state(head);
    const float* from = committed;
    DeltaUpdate update;
    for (int64_t t = 0; t < total; ++t) {
      const float* k = scratch.k + t * view.pk;
      const float* q = t < accepted ? nullptr : scratch.q + t * view.pk;
      float* const to = t <= accepted ? committed : scratch.state;
      sweep_state(view, from, to, update, k, q, scratch.predicted, scratch.o);
      if (update.d != nullptr) from = to;
      const Gates gates =
          t < accepted ? tape_gates(view, t, head) : make_gates(view, t - accepted, head);
      update = {.decay = std::exp(gates.g), .k = k, .d = scratch.v};
      convolve(view, t, view.v_channel(head), view.dv, scratch.v);
      make_change(view, update.decay, gates.beta, scratch.predicted, scratch.v);
      if (t < accepted) continue;
      // (decay·S + k ⊗ d)ᵀq
      const V decay = hn::Set(D(), update.decay);
      const V along = hn::Set(D(), inner_product(k, q, view.dk));
      for (int64_t c = 0; c < view.dv; c += kLanes) {
        const V kept = hn::Mul(decay, hn::LoadU(D(), scratch.o + c));
        hn::StoreU(hn::MulAdd(along, hn::LoadU(D(), scratch.v + c), kept), D(), scratch.o + c);
      }
      gated_norm(view, t - accepted, head, scratch.o);
    }
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
  const int64_t pk = padded_inputs(limits.key_dim), sv = delta_stride(limits.value_dim);
  static_assert(2 * kMaxDecodeRows <= kDeltaChunk, "tape and new rows share the chunk's rows");
  DeltaScratch s;
  s.state = arena.take<float>(pk * sv);
  s.k = arena.take<float>(kDeltaChunk * pk);
  s.q = arena.take<float>(kDeltaChunk * pk);
  s.v = arena.take<float>(kDeltaChunk * sv);
  s.o = arena.take<float>(kDeltaChunk * sv);
  s.predicted = arena.take<float>(sv);
  s.products = arena.take<float>(2 * kDeltaChunk * kDeltaChunk);
  s.weights = arena.take<float>(2 * kDeltaChunk * kDeltaChunk);
  s.k_columns = arena.take<float>(kDeltaChunk * pk);
  s.scaled_k = arena.take<float>(kDeltaChunk * pk);
  return s;
}

}  // namespace pewter
#endif
