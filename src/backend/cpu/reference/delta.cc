// The reference's Gated DeltaNet mixer: the token recurrence, one row and one value head after
// another, for decode and prefill alike. The chunked form of the fast path is tested against this
// one.

#include <algorithm>

#include "backend/cpu/reference/math.h"
#include "backend/cpu/reference/reference_ops.h"

namespace pewter {
namespace {

constexpr float kUnitEpsilon = 1e-6f;  // added to the sum of squares before the root

void to_unit_length(float* x, int64_t n, float scale) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  const float factor = scale / std::sqrt(sum + kUnitEpsilon);
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// Column `index` relative to the first row: negative ones come from the window.
const float* column(const float* window, const float* rows, int64_t row_stride, int64_t channels,
                    int64_t index) {
  return index < 0 ? window + (3 + index) * channels : rows + index * row_stride;
}

// Shifts the window over n rows: its last three columns afterwards are the newest three.
void advance_window(float* window, const float* rows, int64_t row_stride, int64_t channels,
                    int64_t n) {
  if (n == 0) return;
  for (int64_t j = 0; j < 3; ++j) {
    const float* from = column(window, rows, row_stride, channels, n - 3 + j);
    std::copy(from, from + channels, window + j * channels);  // from lies at or after the target
  }
}

}  // namespace

// Runs rows through the recurrence and updates the state in place.
void ReferenceOps::delta_rows(const DeltaMixArgs& args, const DeltaRows& rows, float* state) {
  const int64_t dk = args.key_dim, dv = args.value_dim, heads = args.value_heads;
  const int64_t channels = args.conv.dim(0), repeat = heads / args.key_heads;
  const auto* conv = args.conv.data_as<float>();
  float* mixed = chunk_.data();              // q, k, v of one row after the convolution
  float* output = chunk_.data() + channels;  // o of one head
  for (int64_t i = 0; i < rows.count; ++i) {
    std::fill(mixed, mixed + channels, 0.0f);
    for (int64_t tap = 0; tap < 4; ++tap) {
      const float* u = column(rows.window, rows.columns, rows.column_stride, channels, i - 3 + tap);
      for (int64_t c = 0; c < channels; ++c) mixed[c] += conv[c * 4 + tap] * u[c];
    }
    for (int64_t c = 0; c < channels; ++c) mixed[c] = silu(mixed[c]);
    float* q = mixed;
    float* k = q + args.key_heads * dk;
    const float* v = k + args.key_heads * dk;
    for (int64_t h = 0; h < args.key_heads; ++h) {
      to_unit_length(q + h * dk, dk, 1.0f / std::sqrt(static_cast<float>(dk)));
      to_unit_length(k + h * dk, dk, 1.0f);
    }
    for (int64_t h = 0; h < heads; ++h) {
      const float decay = std::exp(rows.gates[(i * 2) * heads + h]);
      const float beta = rows.gates[(i * 2 + 1) * heads + h];
      const float* kh = k + h / repeat * dk;
      const float* qh = q + h / repeat * dk;
      float* s = state + h * dk * dv;
      for (int64_t j = 0; j < dk * dv; ++j) s[j] *= decay;
      for (int64_t c = 0; c < dv; ++c) {
        float predicted = 0;
        for (int64_t j = 0; j < dk; ++j) predicted += s[j * dv + c] * kh[j];
        const float change = beta * (v[h * dv + c] - predicted);
        float o = 0;
        for (int64_t j = 0; j < dk; ++j) {
          s[j * dv + c] += kh[j] * change;
          o += s[j * dv + c] * qh[j];
        }
        output[c] = o;
      }
      if (rows.first_row < 0) continue;
      float* y = args.out[rows.first_row + i].data_as<float>() + h * dv;
      const float* z = args.in[rows.first_row + i].data_as<float>() + channels + h * dv;
      rms_norm(output, args.norm.data_as<float>(), dv, args.epsilon, NormForm::kPlain, y);
      for (int64_t c = 0; c < dv; ++c) y[c] *= silu(z[c]);
    }
  }
}

void ReferenceOps::fold(const DeltaMixArgs& args, int64_t slot, int64_t accepted) {
  const int64_t channels = args.conv.dim(0);
  auto* window = args.state.window[slot].data_as<float>();
  const auto* tape = args.state.tape[slot].data_as<float>();
  delta_rows(args,
             {.window = window,
              .columns = tape,
              .column_stride = channels,
              .gates = args.state.gates[slot].data_as<float>(),
              .count = accepted,
              .first_row = -1},
             args.state.state[slot].data_as<float>());
  advance_window(window, tape, channels, channels, accepted);
}

void ReferenceOps::delta_mix(const DeltaMixArgs& args) {
  const int64_t channels = args.conv.dim(0), heads = args.value_heads;
  const int64_t state_size = heads * args.key_dim * args.value_dim;
  const auto* a_log = args.a_log.data_as<float>();
  const auto* dt_bias = args.dt_bias.data_as<float>();
  for (int64_t s = 0; s < args.batch.sequences; ++s) {
    const int64_t slot = args.batch.slot[s];
    fold(args, slot, args.batch.accepted[s]);
    const int64_t first = args.batch.row_begin[s], count = args.batch.row_begin[s + 1] - first;
    const int64_t stride = args.in.stride(0);
    const float* in = args.in.data_as<float>() + first * stride;
    for (int64_t i = 0; i < count; ++i) {
      const float* b = in + i * stride + channels + heads * args.value_dim;
      const float* a = b + heads;
      float* gates = gates_.data() + i * 2 * heads;
      for (int64_t h = 0; h < heads; ++h) {
        gates[h] = -std::exp(a_log[h]) * softplus(a[h] + dt_bias[h]);
        gates[heads + h] = sigmoid(b[h]);
      }
    }
    auto* window = args.state.window[slot].data_as<float>();
    auto* state = args.state.state[slot].data_as<float>();
    const DeltaRows rows{.window = window,
                         .columns = in,
                         .column_stride = stride,
                         .gates = gates_.data(),
                         .count = count,
                         .first_row = first};
    if (args.batch.phase == Phase::kPrefill) {
      delta_rows(args, rows, state);
      advance_window(window, in, stride, channels, count);
      continue;
    }
    // Decode commits nothing: the rows run on a copy of the state, and the tape remembers them.
    CHECK(count <= kMaxDecodeRows, count, " rows of one sequence in a decode step");
    std::copy(state, state + state_size, state_copy_.data());
    delta_rows(args, rows, state_copy_.data());
    std::copy(gates_.data(), gates_.data() + count * 2 * heads,
              args.state.gates[slot].data_as<float>());
    for (int64_t i = 0; i < count; ++i)
      std::copy(in + i * stride, in + i * stride + channels,
                args.state.tape[slot][i].data_as<float>());
  }
}

}  // namespace pewter
