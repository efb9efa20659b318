// Prefill rows of the Gated DeltaNet mixer: the chunked form, kDeltaChunk rows at a time.
//
// For a chunk with unit keys K, queries Q, values V, write strengths β and running log decays G:
//   A_ij = β_i (K_i·K_j) e^(G_i − G_j)  for j < i
//   R_i  = β_i (V_i − e^(G_i) K_i S)              what row i would write were it alone
//   N_i  = R_i − Σ_{j<i} A_ij N_j                  forward substitution: what it does write
//   O_i  = e^(G_i) Q_i S + Σ_{j≤i} (Q_i·K_j) e^(G_i − G_j) N_j
//   S    ← e^(G_C) S + Σ_i e^(G_C − G_i) K_i ⊗ N_i
// All exponents are ≤ 0. This is the chunked form with the triangular inverse applied rather than
// formed. Split of work: one key head of one sequence per item; K·K and Q·K once per key head.
// Precision: f32. A chunk that is cut short is simply shorter. Limits: multiply-adds, in L2.

#include <algorithm>
#include <cstring>

#include "backend/cpu/delta.h"
#include "backend/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/delta_prefill.cc"
#include <hwy/foreach_target.h>
//
#include "backend/cpu/delta_inl.h"

HWY_BEFORE_NAMESPACE();
namespace pewter {
namespace HWY_NAMESPACE {

// A matrix of scalars read with any strides: element (i, t) at data[i·row + t·column].
struct Scalars {
  const float* data;
  int64_t row, column;
};

// out[i] += Σ_t a(i, t)·b[t] for kRows rows and kColumns vectors; t in order.
template <int kRows, int kColumns>
HWY_INLINE void multiply_tile(int64_t depth, const Scalars& a, const float* b, float* out,
                              int64_t stride) {
  V acc[kRows][kColumns];
  unroll<kRows>([&](auto i) PEWTER_INLINE_LAMBDA {
    unroll<kColumns>([&](auto c) PEWTER_INLINE_LAMBDA {
      acc[i][c] = hn::LoadU(D(), out + i * stride + c * kLanes);
    });
  });
  for (int64_t t = 0; t < depth; ++t)
    unroll<kColumns>([&](auto c) PEWTER_INLINE_LAMBDA {
      const V row = hn::LoadU(D(), b + t * stride + c * kLanes);
      unroll<kRows>([&](auto i) PEWTER_INLINE_LAMBDA {
        acc[i][c] = hn::MulAdd(hn::Set(D(), a.data[i * a.row + t * a.column]), row, acc[i][c]);
      });
    });
  unroll<kRows>([&](auto i) PEWTER_INLINE_LAMBDA {
    unroll<kColumns>([&](auto c) PEWTER_INLINE_LAMBDA {
      hn::StoreU(acc[i][c], D(), out + i * stride + c * kLanes);
    });
  });
}

// out += a·b; b and out have rows of `width` floats, a multiple of kInputUnit.
void multiply_add(int64_t rows, int64_t depth, Scalars a, const float* b, int64_t width,
                  float* out) {
  constexpr int kColumns = static_cast<int>(HWY_MIN(int64_t{2}, kInputUnit / kLanes));
  for (int64_t c = 0; c < width; c += kColumns * kLanes) {
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4)
      multiply_tile<4, kColumns>(depth, {a.data + i * a.row, a.row, a.column}, b + c,
                                 out + i * width + c, width);
    for (; i < rows; ++i)
      multiply_tile<1, kColumns>(depth, {a.data + i * a.row, a.row, a.column}, b + c,
                                 out + i * width + c, width);
  }
}

HWY_INLINE void scale_row(float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes)
    hn::StoreU(hn::Mul(hn::LoadU(D(), x + i), hn::Set(D(), factor)), D(), x + i);
}

// Keys and queries of rows t0 … t0 + count − 1, and their products.
void make_chunk(const DeltaView& view, int64_t t0, int64_t count, const DeltaScratch& s) {
  for (int64_t i = 0; i < count; ++i) {
    make_key(view, t0 + i, s.k + i * view.pk);
    make_query(view, t0 + i, s.q + i * view.pk);
    s.key_rows[i] = s.k + i * view.pk;
    s.key_rows[count + i] = s.q + i * view.pk;
  }
  // Row i: K_i·K_j; row count + i: Q_i·K_j.
  dot_rows({.w = {.format = WeightFormat::kF32,
                  .k = view.pk,
                  .values = reinterpret_cast<const std::byte*>(s.k),
                  .row_bytes = view.pk * 4},
            .begin = 0,
            .end = count,
            .x = s.key_rows,
            .m = 2 * count,
            .out = s.products,
            .out_stride = kDeltaChunk});
}

// weights[i][j] = factor_i · products[i][j] · e^(G_i − G_j) for j < i + diagonal, 0 beyond.
void decayed_products(const float* products, const float* running, const float* factor,
                      int64_t count, int64_t diagonal, float* weights) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t end = i + diagonal;
    const V gi = hn::Set(D(), running[i]);
    const V f = hn::Set(D(), factor == nullptr ? 1.0f : factor[i]);
    for (int64_t j = 0; j < end; j += kLanes) {
      const V decay = exponential(hn::Sub(gi, load(running + j, end - j)));
      const V product = hn::Mul(f, load(products + i * kDeltaChunk + j, end - j));
      store(hn::Mul(product, decay), weights + i * kDeltaChunk + j, end - j);
    }
    for (int64_t j = end; j < count; ++j) weights[i * kDeltaChunk + j] = 0;
  }
}

// One value head of a chunk whose first row is `row`; updates the state in scratch.
void chunk_head(const DeltaView& view, int64_t row, int64_t count, int64_t head,
                const DeltaScratch& s) {
  const int64_t pk = view.pk, pv = view.pv;
  HWY_ALIGN float running[kDeltaChunk], beta[kDeltaChunk], minus_beta[kDeltaChunk];
  float total = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Gates gates = make_gates(view, row + i, head);
    running[i] = total += gates.g;
    beta[i] = gates.beta;
    minus_beta[i] = -gates.beta;
  }
  // R = β(V − e^G·K S), with −e^G·K S formed first in v; O = e^G·Q S.
  const auto zero = [&](float* x) { std::fill(x, x + count * pv, 0.0f); };
  zero(s.o);
  multiply_add(count, view.dk, {s.k, pk, 1}, s.state, pv, s.o);
  for (int64_t i = 0; i < count; ++i) {
    float* v = s.v + i * pv;
    convolve(view, view.item.accepted + row + i, view.v_channel(head), view.dv, v);
    const V decay = hn::Set(D(), std::exp(running[i])), strength = hn::Set(D(), beta[i]);
    for (int64_t c = 0; c < pv; c += kLanes) {
      const V predicted = hn::Mul(decay, hn::LoadU(D(), s.o + i * pv + c));
      hn::StoreU(hn::Mul(strength, hn::Sub(hn::LoadU(D(), v + c), predicted)), D(), v + c);
    }
  }
  zero(s.o);
  multiply_add(count, view.dk, {s.q, pk, 1}, s.state, pv, s.o);
  for (int64_t i = 0; i < count; ++i) scale_row(s.o + i * pv, std::exp(running[i]), pv);

  decayed_products(s.products, running, minus_beta, count, 0, s.weights);
  for (int64_t i = 1; i < count; ++i)
    multiply_add(1, i, {s.weights + i * kDeltaChunk, 0, 1}, s.v, pv, s.v + i * pv);

  decayed_products(s.products + count * kDeltaChunk, running, nullptr, count, 1, s.weights);
  multiply_add(count, count, {s.weights, kDeltaChunk, 1}, s.v, pv, s.o);
  for (int64_t i = 0; i < count; ++i) gated_norm(view, row + i, head, s.o + i * pv);

  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(s.scaled_k + i * pk, s.k + i * pk, static_cast<size_t>(pk) * sizeof(float));
    scale_row(s.scaled_k + i * pk, std::exp(total - running[i]), pk);
  }
  for (int64_t i = 0; i < view.dk; ++i) scale_row(s.state + i * pv, std::exp(total), pv);
  multiply_add(view.dk, count, {s.scaled_k, 1, pk}, s.v, pv, s.state);
}

void delta_prefill(const DeltaItem& item, const DeltaScratch& scratch) {
  const DeltaView view(item);
  const int64_t accepted = item.accepted;
  const int64_t first = view.first_head(), last = first + view.repeat;
  // The tape first, row by row as decode does.
  for (int64_t t = 0; t < accepted; ++t) make_key(view, t, scratch.k + t * view.pk);
  for (int64_t head = first; accepted > 0 && head < last; ++head) apply_tape(view, head, scratch);
  for (int64_t row = 0; row < item.rows; row += kDeltaChunk) {
    const int64_t count = HWY_MIN(item.rows - row, kDeltaChunk);
    make_chunk(view, accepted + row, count, scratch);
    for (int64_t head = first; head < last; ++head) {
      load_state(view, head, scratch.state);
      chunk_head(view, row, count, head, scratch);
      store_state(view, head, scratch.state);
    }
  }
  advance_window(view, accepted + item.rows);
}

}  // namespace HWY_NAMESPACE
}  // namespace pewter
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pewter {

HWY_EXPORT(delta_prefill);
void delta_prefill(const DeltaItem& item, const DeltaScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(delta_prefill)(item, scratch);
}

}  // namespace pewter
#endif
