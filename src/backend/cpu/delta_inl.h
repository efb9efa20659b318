// What decode and prefill share, compiled once per target: where columns lie, convolution, unit
// vectors, gates, the recurrence of one row, the gated norm.
#if defined(PEWTER_DELTA_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PEWTER_DELTA_INL_H
#undef PEWTER_DELTA_INL_H
#else
#define PEWTER_DELTA_INL_H
#endif

#include <cmath>

#include "backend/cpu/delta.h"
#include "backend/cpu/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace pewter {
namespace HWY_NAMESPACE {

constexpr float kUnitEpsilon = 1e-6f;  // added to the sum of squares before the root

// An item's shapes and the tensors it touches.
struct DeltaView {
  const DeltaMixArgs& args;
  const DeltaItem& item;
  int64_t dk, dv, pk, pv, channels, repeat;
  int64_t sv;          // floats between rows of pv columns in scratch
  BFloat16* window;    // [3, channels]
  BFloat16* tape;      // [kMaxDecodeRows, channels]
  float* gates;        // [kMaxDecodeRows, 2, Hv]
  const BFloat16* in;  // the item's first row
  int64_t in_stride;

  explicit DeltaView(const DeltaItem& i)
      : args(*i.args),
        item(i),
        dk(args.key_dim),
        dv(args.value_dim),
        pk(padded_inputs(dk)),
        pv(padded_inputs(dv)),
        channels(args.conv.dim(0)),
        repeat(args.value_heads / args.key_heads),
        sv(delta_stride(dv)),
        window(args.state.window[i.slot].data_as<BFloat16>()),
        tape(args.state.tape[i.slot].data_as<BFloat16>()),
        gates(args.state.gates[i.slot].data_as<float>()),
        in(nullptr),
        in_stride(0) {
    if (i.rows == 0) return;
    in = args.in[i.first_row].data_as<BFloat16>();
    in_stride = args.in.stride(0);
  }

  int64_t q_channel() const { return item.key_head * dk; }
  int64_t k_channel() const { return (args.key_heads + item.key_head) * dk; }
  int64_t v_channel(int64_t head) const { return 2 * args.key_heads * dk + head * dv; }
  int64_t first_head() const { return item.key_head * repeat; }
  float* state(int64_t head) const { return args.state.state[item.slot][head].data_as<float>(); }

  // Column t of the sequence window, accepted tape, new rows; row t's own column is t + 3.
  const BFloat16* column(int64_t t) const {
    if (t < 3) return window + t * channels;
    if (t < 3 + item.accepted) return tape + (t - 3) * channels;
    return in + (t - 3 - item.accepted) * in_stride;
  }

  // f(first channel, count) for the three runs of channels that belong to the item.
  template <class F>
  void for_channels(const F& f) const {
    f(q_channel(), dk);
    f(k_channel(), dk);
    f(v_channel(first_head()), repeat * dv);
  }
};

// c = silu(Σ_tap w·u) of rows t … t + rows − 1 for `count` channels, f32, `stride` floats apart;
// zeros up to the padded count.
HWY_INLINE void convolve_rows(const DeltaView& view, int64_t t, int64_t rows, int64_t channel,
                              int64_t count, float* out, int64_t stride) {
  const float* taps = view.args.conv.data_as<float>() + channel * 4;
  HWY_ALIGN float last[4 * kLanes] = {};
  for (int64_t i = 0; i < count; i += kLanes) {
    const float* from = taps + i * 4;
    const int64_t left = count - i;
    if (left < kLanes) {
      for (int64_t j = 0; j < left * 4; ++j) last[j] = from[j];
      from = last;
    }
    V w0, w1, w2, w3;
    hn::LoadInterleaved4(D(), from, w0, w1, w2, w3);
    const auto input = [&](int64_t column) PEWTER_INLINE_LAMBDA {
      return load(view.column(column) + channel + i, left);
    };
    V u0 = input(t), u1 = input(t + 1), u2 = input(t + 2);
    for (int64_t r = 0; r < rows; ++r) {
      const V u3 = input(t + r + 3);
      V c = hn::Mul(w0, u0);
      c = hn::MulAdd(w1, u1, c);
      c = hn::MulAdd(w2, u2, c);
      c = hn::MulAdd(w3, u3, c);
      hn::StoreU(silu(c), D(), out + r * stride + i);
      u0 = u1;
      u1 = u2;
      u2 = u3;
    }
  }
  const int64_t written = (count + kLanes - 1) / kLanes * kLanes;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = written; i < padded_inputs(count); ++i) out[r * stride + i] = 0;
}
HWY_INLINE void convolve(const DeltaView& view, int64_t t, int64_t channel, int64_t count,
                         float* out) {
  convolve_rows(view, t, 1, channel, count, out, 0);
}

HWY_INLINE void to_unit_length(float* x, int64_t n, float scale) {
  const V factor = hn::Set(D(), scale / std::sqrt(sum_of_squares(x, n) + kUnitEpsilon));
  for (int64_t i = 0; i < n; i += kLanes)
    hn::StoreU(hn::Mul(hn::LoadU(D(), x + i), factor), D(), x + i);
}

// Unit keys and scaled unit queries of the item's key head, rows from t on.
HWY_INLINE void make_keys(const DeltaView& view, int64_t t, int64_t rows, float* k) {
  convolve_rows(view, t, rows, view.k_channel(), view.dk, k, view.pk);
  for (int64_t r = 0; r < rows; ++r) to_unit_length(k + r * view.pk, view.dk, 1.0f);
}
HWY_INLINE void make_queries(const DeltaView& view, int64_t t, int64_t rows, float* q) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(view.dk));
  convolve_rows(view, t, rows, view.q_channel(), view.dk, q, view.pk);
  for (int64_t r = 0; r < rows; ++r) to_unit_length(q + r * view.pk, view.dk, scale);
}

struct Gates {
  float g, beta;  // log decay ≤ 0, write strength in (0, 1)
};

// Gates of a new row, from its projections b and a.
HWY_INLINE Gates make_gates(const DeltaView& view, int64_t row, int64_t head) {
  const BFloat16* b =
      view.in + row * view.in_stride + view.channels + view.args.value_heads * view.dv;
  const float strength = to_float(b[head]);
  const float x =
      to_float(b[view.args.value_heads + head]) + view.args.dt_bias.data_as<float>()[head];
  const float softplus = x > 20.0f ? x : std::log1p(std::exp(x));
  return {.g = -std::exp(view.args.a_log.data_as<float>()[head]) * softplus,
          .beta = 1.0f / (1.0f + std::exp(-strength))};
}
HWY_INLINE float* tape_gate(const DeltaView& view, int64_t row, int64_t head) {
  return view.gates + row * 2 * view.args.value_heads + head;
}
HWY_INLINE Gates tape_gates(const DeltaView& view, int64_t row, int64_t head) {
  const float* at = tape_gate(view, row, head);
  return {.g = at[0], .beta = at[view.args.value_heads]};
}

// State of one value head to and from scratch with padded rows.
HWY_INLINE void load_state(const DeltaView& view, int64_t head, float* state) {
  const float* from = view.state(head);
  for (int64_t i = 0; i < view.dk; ++i)
    for (int64_t c = 0; c < view.pv; c += kLanes)
      hn::StoreU(c < view.dv ? load(from + i * view.dv + c, view.dv - c) : hn::Zero(D()), D(),
                 state + i * view.sv + c);
}
HWY_INLINE void store_state(const DeltaView& view, int64_t head, const float* state) {
  float* to = view.state(head);
  for (int64_t i = 0; i < view.dk; ++i)
    for (int64_t c = 0; c < view.dv; c += kLanes)
      store(hn::LoadU(D(), state + i * view.sv + c), to + i * view.dv + c, view.dv - c);
}

// What a row adds to the state: S ← decay·S + k ⊗ d with d = β(v − decay·Sᵀk).
struct DeltaUpdate {
  float decay = 1;
  const float* k = nullptr;  // [dk]
  const float* d = nullptr;  // [pv]
};

// Columns c … of one pass over a state (sweep_state).
template <int kColumns>
HWY_INLINE void sweep_columns(const DeltaView& view, const float* from, float* to,
                              const DeltaUpdate& update, const float* k, const float* q, int64_t c,
                              float* predicted, float* output) {
  const int64_t stride = view.dv, left = stride - c;  // only a single column vector may be cut
  const auto read = [&](const float* at) PEWTER_INLINE_LAMBDA {
    return kColumns == 1 ? load(at, left) : hn::LoadU(D(), at);
  };
  V d[kColumns], pk[kColumns], pq[kColumns];
  unroll<kColumns>([&](auto j) PEWTER_INLINE_LAMBDA {
    d[j] = update.d == nullptr ? hn::Zero(D()) : hn::LoadU(D(), update.d + c + j * kLanes);
    pk[j] = pq[j] = hn::Zero(D());
  });
  const V decay = hn::Set(D(), update.decay);
  const auto rows = [&](auto updates, auto reads_k, auto reads_q) PEWTER_INLINE_LAMBDA {
    for (int64_t i = 0; i < view.dk; ++i) {
      unroll<kColumns>([&](auto j) PEWTER_INLINE_LAMBDA {
        const int64_t at = i * stride + c + j * kLanes;
        V s = read(from + at);
        if constexpr (updates) {
          s = hn::MulAdd(hn::Set(D(), update.k[i]), d[j], hn::Mul(decay, s));
          if constexpr (kColumns == 1)
            store(s, to + at, left);
          else
            hn::StoreU(s, D(), to + at);
        }
        if constexpr (reads_k) pk[j] = hn::MulAdd(s, hn::Set(D(), k[i]), pk[j]);
        if constexpr (reads_q) pq[j] = hn::MulAdd(s, hn::Set(D(), q[i]), pq[j]);
      });
    }
  };
  constexpr std::true_type kYes;
  constexpr std::false_type kNo;
  if (k == nullptr)
    rows(kYes, kNo, kNo);
  else if (update.d != nullptr && q != nullptr)
    rows(kYes, kYes, kYes);
  else if (update.d != nullptr)
    rows(kYes, kYes, kNo);
  else if (q != nullptr)
    rows(kNo, kYes, kYes);
  else
    rows(kNo, kYes, kNo);
  unroll<kColumns>([&](auto j) PEWTER_INLINE_LAMBDA {
    if (k != nullptr) hn::StoreU(pk[j], D(), predicted + c + j * kLanes);
    if (q != nullptr) hn::StoreU(pq[j], D(), output + c + j * kLanes);
  });
}

// One pass over a state [dk, dv]: applies the update of the row before, if there is one, writing
// the state to `to` (which may be `from`), and forms Sᵀk and Sᵀq of the row that comes, if given.
// Columns are independent and sums run over dk in order, so how they are cut leaves no trace.
HWY_INLINE void sweep_state(const DeltaView& view, const float* from, float* to,
                            const DeltaUpdate& update, const float* k, const float* q,
                            float* predicted, float* output) {
  constexpr int kColumns = kLanes == 16 ? 8 : kLanes == 8 ? 2 : 4;
  int64_t c = 0;
  for (; c + kColumns * kLanes <= view.dv; c += kColumns * kLanes)
    sweep_columns<kColumns>(view, from, to, update, k, q, c, predicted, output);
  for (; c < view.dv; c += kLanes)
    sweep_columns<1>(view, from, to, update, k, q, c, predicted, output);
}

// d = β(v − decay·predicted) in place of v.
HWY_INLINE void make_change(const DeltaView& view, float decay, float beta, const float* predicted,
                            float* v) {
  for (int64_t c = 0; c < view.dv; c += kLanes) {
    const V error =
        hn::NegMulAdd(hn::Set(D(), decay), hn::LoadU(D(), predicted + c), hn::LoadU(D(), v + c));
    hn::StoreU(hn::Mul(hn::Set(D(), beta), error), D(), v + c);
  }
}

// Applies the accepted rows of the tape, whose keys are in scratch.k, to a head's state.
HWY_INLINE void apply_tape(const DeltaView& view, int64_t head, const DeltaScratch& s) {
  float* state = view.state(head);
  DeltaUpdate update;
  for (int64_t t = 0; t < view.item.accepted; ++t) {
    const float* k = s.k + t * view.pk;
    sweep_state(view, state, state, update, k, nullptr, s.predicted, nullptr);
    const Gates gates = tape_gates(view, t, head);
    update = {.decay = std::exp(gates.g), .k = k, .d = s.v};
    convolve(view, t, view.v_channel(head), view.dv, s.v);
    make_change(view, update.decay, gates.beta, s.predicted, s.v);
  }
  if (view.item.accepted > 0)
    sweep_state(view, state, state, update, nullptr, nullptr, nullptr, nullptr);
}

// out = o / √(mean(o²) + ε) · w ⊙ silu(z), rounded to the activation type.
HWY_INLINE void gated_norm(const DeltaView& view, int64_t row, int64_t head, const float* o) {
  const int64_t n = view.dv;
  const float mean = sum_of_squares(o, n) / static_cast<float>(n);
  const V scale = hn::Set(D(), 1.0f / std::sqrt(mean + view.args.epsilon));
  const float* w = view.args.norm.data_as<float>();
  const BFloat16* z = view.in + row * view.in_stride + view.channels + head * n;
  auto* out = view.args.out[view.item.first_row + row].data_as<BFloat16>() + head * n;
  for (int64_t i = 0; i < n; i += kLanes) {
    const V y = hn::Mul(hn::Mul(load(o + i, n - i), scale), load(w + i, n - i));
    store(hn::Mul(y, silu(load(z + i, n - i))), out + i, n - i);
  }
}

// The window after the first `rows` rows: the last three columns up to there. Columns only move
// forward, and a target is written after it has been read.
HWY_INLINE void advance_window(const DeltaView& view, int64_t rows) {
  if (rows == 0) return;
  view.for_channels([&](int64_t channel, int64_t count) {
    for (int64_t j = 0; j < 3; ++j)
      std::memmove(view.window + j * view.channels + channel, view.column(rows + j) + channel,
                   static_cast<size_t>(count) * sizeof(BFloat16));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace pewter
HWY_AFTER_NAMESPACE();

#endif
