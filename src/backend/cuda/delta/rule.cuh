// The delta rule of one value head: its state in the registers of one block of threads.
//
// Columns of the state do not meet: warp w owns columns 8w … 8w + 7, a lane four of them and every
// 16th key; sums over keys are shuffles, so a row costs no barrier. Precision: f32.
#pragma once

#include "backend/cuda/common/arrival.cuh"
#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/delta/delta.h"

namespace pewter::cuda {

constexpr int kTapeRows = 16;
constexpr float kUnitEpsilon = 1e-6f;  // added to the sum of squares before the root

struct Part {
  int slot, accepted, first, rows;
  int64_t scratch;  // first scratch row
};

__device__ inline Part part_of(const DeltaArgs& a, int sequence) {
  if (a.slot == nullptr) return {a.fold_slot, a.fold_accepted, 0, 0, 0};
  const int first = __ldcg(a.row_begin + sequence), end = __ldcg(a.row_begin + sequence + 1);
  return {__ldcg(a.slot + sequence), __ldcg(a.accepted + sequence), first, end - first,
          static_cast<int64_t>(kTapeRows) * sequence + first};
}

// The convolution of four taps over one channel, and SiLU.
__device__ inline float convolve(const float4& taps, const __nv_bfloat16 (&last)[3],
                                 __nv_bfloat16 value) {
  const float sum = fmaf(
      taps.w, to_float(value),
      fmaf(taps.z, to_float(last[2]), fmaf(taps.y, to_float(last[1]), taps.x * to_float(last[0]))));
  return silu(sum);
}

constexpr int kRuleWarps = 16, kRuleThreads = kRuleWarps * kWarp;
constexpr int kColumns = 8 * kRuleWarps;  // value columns a block covers
constexpr int kKeySteps = 8;              // keys a lane owns: key dimensions up to 128
constexpr int kKeys = 16 * kKeySteps;

// The state of one head, a lane's share of it. kWhole: kKeys keys and kColumns columns.
template <bool kWhole>
struct HeadState {
  static constexpr bool kMakesUnits = false;  // q and k are unit vectors when a row runs
  float s[kKeySteps][4];
  float* memory;
  int key, column, keys, columns;

  __device__ HeadState(const DeltaArgs& a, int slot, int head)
      : memory(a.state +
               (static_cast<int64_t>(slot) * a.value_heads + head) * a.key_dim * a.value_dim),
        key(static_cast<int>(threadIdx.x) % kWarp / 2),
        column(8 * (static_cast<int>(threadIdx.x) / kWarp) +
               4 * (static_cast<int>(threadIdx.x) % 2)),
        keys(a.key_dim),
        columns(a.value_dim) {
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
      const float* from = place(memory, i);
      if (kWhole) {
        const float4 four = *reinterpret_cast<const float4*>(from);
        s[i][0] = four.x, s[i][1] = four.y, s[i][2] = four.z, s[i][3] = four.w;
      } else {
#pragma unroll
        for (int c = 0; c < 4; ++c)
          s[i][c] = 16 * i + key < keys && column + c < columns ? from[c] : 0.0f;
      }
    }
  }
  __device__ float* place(float* first, int i) const {
    return first + (16 * i + key) * (kWhole ? kColumns : columns) + column;
  }

  // Behind the tape's rows: what they leave.
  __device__ void keep() const { store(); }
  __device__ void store() const {
    float* first = memory;
    asm volatile("" : "+l"(first));  // or the compiler keeps eight addresses since the loads
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
      float* to = place(first, i);
      if (kWhole) {
        *reinterpret_cast<float4*>(to) = make_float4(s[i][0], s[i][1], s[i][2], s[i][3]);
      } else {
        for (int c = 0; c < 4; ++c)
          if (16 * i + key < keys && column + c < columns) to[c] = s[i][c];
      }
    }
  }

  // Sum over the 16 lanes that share columns: lane = 2·key + column half.
  static __device__ float key_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 1; offset /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, offset);
    return x;
  }

  // Before the tape's rows; before any.
  __device__ void begin() const {}
  __device__ void resume() const {}

  // One row: k and q unit vectors [kKeys], v [kColumns], which becomes the row's output.
  __device__ void run_row(const float* q_row, const float* k_row, float* v, float decay,
                          float write) {
    float predicted[4] = {}, o[4] = {};
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
      const float k = k_row[16 * i + key];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        s[i][c] *= decay;
        predicted[c] = fmaf(s[i][c], k, predicted[c]);
      }
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) predicted[c] = write * (v[column + c] - key_sum(predicted[c]));
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
      const float k = k_row[16 * i + key], q = q_row[16 * i + key];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        s[i][c] = fmaf(k, predicted[c], s[i][c]);
        o[c] = fmaf(s[i][c], q, o[c]);
      }
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) o[c] = key_sum(o[c]);
    __syncwarp();  // the row's v has been read
    if (key == 0)
#pragma unroll
      for (int c = 0; c < 4; ++c) v[column + c] = o[c];
  }
};

inline bool is_whole(const DeltaArgs& a) { return a.key_dim == kKeys && a.value_dim == kColumns; }

// A warp makes a vector of dk inputs a unit vector, q shorter still by the root of dk; `to` has
// kKeys places. to may be from.
__device__ inline void unit_vector(const float* from, bool is_k, int dk, float* to) {
  constexpr int kParts = kKeys / kWarp;
  const int lane = threadIdx.x % kWarp;
  float x[kParts], sum = 0;
#pragma unroll
  for (int j = 0; j < kParts; ++j) x[j] = j * kWarp + lane < dk ? from[j * kWarp + lane] : 0.0f;
#pragma unroll
  for (int j = 0; j < kParts; ++j) sum = fmaf(x[j], x[j], sum);
  float factor = rsqrtf(warp_sum(sum) + kUnitEpsilon);
  if (!is_k) factor *= rsqrtf(static_cast<float>(dk));
#pragma unroll
  for (int j = 0; j < kParts; ++j) to[j * kWarp + lane] = x[j] * factor;
}

// The gated norm of one row's outputs, by one warp.
struct GatedNorm {
  static constexpr int kParts = kColumns / kWarp;
  __nv_bfloat16 gate[kParts];

  // The row's gates of this head, from `column` on, of rows as in arrival.cuh.
  template <typename Rows>
  __device__ void load_gate(const Rows& rows, int row, int column, int dv) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    uint64_t word[kParts];
#pragma unroll
    for (int j = 0; j < kParts; ++j)
      if (j * kWarp + lane < dv) word[j] = rows.ask(row, column + j * kWarp + lane);
#pragma unroll
    for (int j = 0; j < kParts; ++j)
      gate[j] = j * kWarp + lane < dv ? rows.take(word[j], row, column + j * kWarp + lane)
                                      : __float2bfloat16(0.0f);
  }
  // copy: where the results go besides, unless null; may overlap o.
  __device__ void write(const float* o, const float* norm, float epsilon, int dv,
                        __nv_bfloat16* out, __nv_bfloat16* copy = nullptr) const {
    const int lane = threadIdx.x % kWarp;
    float sum = 0, value[kParts];
#pragma unroll
    for (int j = 0; j < kParts; ++j) {
      const float x = j * kWarp + lane < dv ? o[j * kWarp + lane] : 0.0f;
      sum = fmaf(x, x, sum);
    }
    const float scale = rsqrtf(warp_sum(sum) / static_cast<float>(dv) + epsilon);
#pragma unroll
    for (int j = 0; j < kParts; ++j) {
      const int c = j * kWarp + lane;
      value[j] = c < dv ? o[c] * scale * norm[c] * silu(to_float(gate[j])) : 0.0f;
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kParts; ++j) {
      const int c = j * kWarp + lane;
      if (c >= dv) continue;
      out[c] = __float2bfloat16(value[j]);
      if (copy != nullptr) copy[c] = __float2bfloat16(value[j]);
    }
  }
};

struct Gates {
  float decay, write;  // g, a logarithm, and β
};
// Gates from a row's inputs b and a of a head.
__device__ inline Gates gates_of(__nv_bfloat16 b, __nv_bfloat16 a, float rate, float bias) {
  return {rate * softplus(to_float(a) + bias), sigmoid(to_float(b))};
}

}  // namespace pewter::cuda
