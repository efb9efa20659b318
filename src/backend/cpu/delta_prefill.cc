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

// Rows of a tile, and vectors of columns: 16 sums, and what they need, fit 32 registers, 8 fit 16.
// Two vectors of columns of a state are 16 KiB, which stay in L1 while all rows pass.
constexpr int kTileRows = HWY_TARGET == HWY_AVX2 ? 4 : 8, kTileColumns = 2;

// A matrix of `width` columns, a multiple of kInputUnit, whose rows are `stride` floats apart.
struct Columns {
  int64_t width, stride;
};

// out += a·b. With `triangular` a(i, t) is zero for t > i, which is not multiplied.
void multiply_add(int64_t rows, int64_t depth, const Scalars& a, const float* b,
                  const Columns& columns, float* out, bool triangular = false) {
  constexpr int kWide = static_cast<int>(HWY_MIN(int64_t{kTileColumns}, kInputUnit / kLanes));
  const int64_t stride = columns.stride;
  for (int64_t c = 0; c < columns.width; c += kWide * kLanes) {
    int64_t i = 0;
    for (; i + kTileRows <= rows; i += kTileRows)
      multiply_tile<kTileRows, kWide>(triangular ? HWY_MIN(depth, i + kTileRows) : depth,
                                      {a.data + i * a.row, a.row, a.column}, b + c,
                                      out + i * stride + c, stride);
    for (; i < rows; ++i)
      multiply_tile<1, kWide>(triangular ? HWY_MIN(depth, i + 1) : depth,
                              {a.data + i * a.row, a.row, a.column}, b + c, out + i * stride + c,
                              stride);
  }
}

// x[i] += Σ_{j<i} a(i, j)·x[j] for all i in turn, so that row j is what it became. What earlier
// tiles of rows add goes a tile at a time; the order of a row's sum is j's all the same.
void substitute(int64_t rows, const Scalars& a, const Columns& columns, float* x) {
  const int64_t stride = columns.stride;
  for (int64_t i = 0; i < rows; i += kTileRows) {
    const int64_t end = HWY_MIN(i + kTileRows, rows);
    multiply_add(end - i, i, {a.data + i * a.row, a.row, a.column}, x, columns, x + i * stride);
    for (int64_t r = i + 1; r < end; ++r)
      multiply_add(1, r - i, {a.data + r * a.row + i * a.column, 0, a.column}, x + i * stride,
                   columns, x + r * stride);
  }
}

HWY_INLINE void scale_row(float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes)
    hn::StoreU(hn::Mul(hn::LoadU(D(), x + i), hn::Set(D(), factor)), D(), x + i);
}

constexpr Columns kProducts{kDeltaChunk, kDeltaChunk};

// Keys and queries of rows t0 … t0 + count − 1, and their products.
void make_chunk(const DeltaView& view, int64_t t0, int64_t count, const DeltaScratch& s) {
  const int64_t pk = view.pk;
  make_keys(view, t0, count, s.k);
  make_queries(view, t0, count, s.q);
  for (int64_t d = 0; d < view.dk; ++d) {
    float* column = s.k_columns + d * kDeltaChunk;
    for (int64_t i = 0; i < count; ++i) column[i] = s.k[i * pk + d];
    std::fill(column + count, column + kDeltaChunk, 0.0f);
  }
  // Row i: K_i·K_j; row count + i: Q_i·K_j.
  std::fill(s.products, s.products + 2 * count * kDeltaChunk, 0.0f);
  multiply_add(count, view.dk, {s.k, pk, 1}, s.k_columns, kProducts, s.products);
  multiply_add(count, view.dk, {s.q, pk, 1}, s.k_columns, kProducts,
               s.products + count * kDeltaChunk);
}

// e^x for x ≤ 0, and 0 below e⁻⁶⁹ ≈ 10⁻³⁰: what is smaller changes no sum, and as a factor it would
// make denormal numbers, on which some processors take a hundred times as long.
HWY_INLINE V decay_of(V x) {
  return hn::IfThenElseZero(hn::Gt(x, hn::Set(D(), -69.0f)), exponential(x));
}

// The products of a chunk times e^(G_i − G_j): key products for j < i, times −β_i, and query
// products for j ≤ i; 0 beyond.
void decay_products(const float* products, const float* running, const float* minus_beta,
                    int64_t count, float* key_weights, float* query_weights) {
  const float* query_products = products + count * kDeltaChunk;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = i * kDeltaChunk;
    const V gi = hn::Set(D(), running[i]), factor = hn::Set(D(), minus_beta[i]);
    for (int64_t j = 0; j <= i; j += kLanes) {
      const V decay = decay_of(hn::Sub(gi, hn::LoadU(D(), running + j)));
      const V key = hn::Mul(factor, hn::LoadU(D(), products + at + j));
      hn::StoreU(hn::Mul(key, decay), D(), key_weights + at + j);
      hn::StoreU(hn::Mul(hn::LoadU(D(), query_products + at + j), decay), D(),
                 query_weights + at + j);
    }
    std::fill(key_weights + at + i, key_weights + at + kDeltaChunk, 0.0f);
    std::fill(query_weights + at + i + 1, query_weights + at + kDeltaChunk, 0.0f);
  }
}

// One value head of a chunk whose first row is `row`; updates the state in scratch.
void chunk_head(const DeltaView& view, int64_t row, int64_t count, int64_t head,
                const DeltaScratch& s) {
  const int64_t pk = view.pk, pv = view.pv, sv = view.sv;
  const Columns columns{pv, sv};
  HWY_ALIGN float running[kDeltaChunk] = {}, beta[kDeltaChunk], minus_beta[kDeltaChunk];
  HWY_ALIGN float passed[kDeltaChunk], left[kDeltaChunk];  // e^G_i, e^(G_C − G_i)
  float total = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Gates gates = make_gates(view, row + i, head);
    running[i] = total += gates.g;
    beta[i] = gates.beta;
    minus_beta[i] = -gates.beta;
  }
  for (int64_t i = 0; i < kDeltaChunk; i += kLanes) {
    const V g = hn::Load(D(), running + i);
    hn::Store(decay_of(g), D(), passed + i);
    hn::Store(decay_of(hn::Sub(hn::Set(D(), total), g)), D(), left + i);
  }
  // R = β(V − e^G·K S), with −e^G·K S formed first in v; O = e^G·Q S.
  const auto zero = [&](float* x) { std::fill(x, x + count * sv, 0.0f); };
  zero(s.o);
  multiply_add(count, view.dk, {s.k, pk, 1}, s.state, columns, s.o);
  convolve_rows(view, view.item.accepted + row, count, view.v_channel(head), view.dv, s.v, sv);
  for (int64_t i = 0; i < count; ++i) {
    float* v = s.v + i * sv;
    const V decay = hn::Set(D(), passed[i]), strength = hn::Set(D(), beta[i]);
    for (int64_t c = 0; c < pv; c += kLanes) {
      const V predicted = hn::Mul(decay, hn::LoadU(D(), s.o + i * sv + c));
      hn::StoreU(hn::Mul(strength, hn::Sub(hn::LoadU(D(), v + c), predicted)), D(), v + c);
    }
  }
  zero(s.o);
  multiply_add(count, view.dk, {s.q, pk, 1}, s.state, columns, s.o);
  for (int64_t i = 0; i < count; ++i) scale_row(s.o + i * sv, passed[i], pv);

  float* query_weights = s.weights + kDeltaChunk * kDeltaChunk;
  decay_products(s.products, running, minus_beta, count, s.weights, query_weights);
  substitute(count, {s.weights, kDeltaChunk, 1}, columns, s.v);

  multiply_add(count, count, {query_weights, kDeltaChunk, 1}, s.v, columns, s.o,
               /*triangular=*/true);
  for (int64_t i = 0; i < count; ++i) gated_norm(view, row + i, head, s.o + i * sv);

  for (int64_t d = 0; d < view.dk; ++d)
    for (int64_t i = 0; i < kDeltaChunk; i += kLanes)
      hn::StoreU(
          hn::Mul(hn::LoadU(D(), s.k_columns + d * kDeltaChunk + i), hn::Load(D(), left + i)), D(),
          s.scaled_k + d * kDeltaChunk + i);
  for (int64_t i = 0; i < view.dk; ++i) scale_row(s.state + i * sv, passed[count - 1], pv);
  multiply_add(view.dk, count, {s.scaled_k, kDeltaChunk, 1}, s.v, columns, s.state);
}

void delta_prefill(const DeltaItem& item, const DeltaScratch& scratch) {
  const DeltaView view(item);
  const int64_t accepted = item.accepted;
  const int64_t first = view.first_head(), last = first + view.repeat;
  // The tape first, row by row as decode does.
  make_keys(view, 0, accepted, scratch.k);
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
