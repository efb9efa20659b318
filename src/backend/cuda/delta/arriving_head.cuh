// A value head whose inputs arrive word by word (common/arrival.cuh), in a block of nine warps with
// few registers (linear/flow.cuh): its state in shared memory and, while rows run, in registers;
// and its end, the gated norm of a row's outputs and their coding.
//
// From a row's last input to its last output everything waits for one head, so what can be done
// before is: half of the state is in registers, the gates' exponentials are taken by the ninth
// warp, which also has run the end once, so that its instructions are there.
#pragma once

#include "backend/cuda/common/bulk.cuh"
#include "backend/cuda/common/matrix.cuh"
#include "backend/cuda/delta/head.cuh"
#include "backend/cuda/linear/coded_rows.cuh"
#include "backend/cuda/linear/net.h"

namespace pewter::cuda {

// And the gates of the new rows' outputs, as the norm's factors.
struct ArrivingHeadMemory : HeadMemory {
  alignas(16) float gate[kMostNetRows][kColumns];
  uint32_t number;  // of the launch
};

// The state of one head: kKeys keys and kColumns columns. What is done with it, and in which order,
// is HeadState's. Warp w has columns 8w … 8w + 7 and 64 + 8w … 64 + 8w + 7; a lane has every 16th
// key, and four columns of each half.
struct SharedHeadState {
  static constexpr bool kMakesUnits = true;    // run_row makes q and k unit vectors
  static constexpr int kPitch = kColumns + 4;  // so that lanes that read at once hit other banks
  static constexpr int64_t kBytes = kKeys * kPitch * 4;
  static constexpr int kHalf = kColumns / 2;
  float s[2][kKeySteps][4];
  float* shared;
  uint32_t barrier;

  // Complete after begin(). at: kBytes of shared memory, aligned to 16; sync(): a barrier of the
  // threads.
  template <typename Sync>
  __device__ SharedHeadState(const DeltaArgs& a, int slot, int head, float* at,
                             uint64_t* shared_barrier, const Sync& sync)
      : shared(at), barrier(shared_address(shared_barrier)) {
    const float* const memory = memory_of(a, slot, head);
    if (threadIdx.x == 0) {
      init_barrier<1>(barrier);
      publish_barriers();
    }
    sync();
    if (threadIdx.x == 0) expect_bytes(barrier, kKeys * kColumns * 4);
    // One warp alone takes microseconds to ask for every row; where many heads ask, more of them
    // together would keep the memory from the weights, which are wanted first.
    const int asking = a.value_heads > 48 ? 2 : 4, warp = static_cast<int>(threadIdx.x) / kWarp;
    if (threadIdx.x % kWarp != 0 || warp >= asking) return;
#pragma unroll 1
    for (int key = warp; key < kKeys; key += asking)
      copy_bulk_once(shared_address(shared + key * kPitch), memory + key * kColumns, kColumns * 4,
                     barrier);
  }

  static __device__ float* memory_of(const DeltaArgs& a, int slot, int head) {
    return a.state +
           (static_cast<int64_t>(slot) * a.value_heads + head) * kKeys * int64_t{kColumns};
  }
  static __device__ int lane() { return thread_again() % kWarp; }
  static __device__ int first_column() {
    const int thread = thread_again();
    return 8 * (thread / kWarp) + 4 * (thread % kWarp / 16);
  }
  // Of a lane's columns in the first half, key `lane % 16`.
  __device__ float* first_place() const { return shared + lane() % 16 * kPitch + first_column(); }
  static __device__ float4* place(float* first, int half, int i) {
    return reinterpret_cast<float4*>(first + 16 * i * kPitch + half * kHalf);
  }
  __device__ void load(int half) {
    float* const first = first_place();
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
      const float4 four = *place(first, half, i);
      s[half][i][0] = four.x, s[half][i][1] = four.y, s[half][i][2] = four.z,
      s[half][i][3] = four.w;
    }
  }

  // Before the tape's rows: the state is there, its first half in registers from now on. Before any
  // rows: the other half, for which there was no room while inputs were waited for.
  __device__ void begin() {
    wait_barrier(barrier, 0);
    load(0);
  }
  __device__ void resume() { load(1); }
  // Behind the tape's rows: what they leave.
  __device__ void keep() const {
    float* const first = first_place();
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < kKeySteps; ++i)
        *place(first, half, i) =
            make_float4(s[half][i][0], s[half][i][1], s[half][i][2], s[half][i][3]);
  }

  // Sums over the 16 lanes that share columns, of one of a lane's eight columns (own_column), as
  // HeadState::key_sum adds them.
  static __device__ float key_sum(const float (&x)[2][4]) {
    const int at = lane();
    float four[4], two[2];
#pragma unroll
    for (int c = 0; c < 4; ++c)
      four[c] = (at & 8 ? x[1][c] : x[0][c]) +
                __shfl_xor_sync(0xFFFFFFFFu, at & 8 ? x[0][c] : x[1][c], 8);
#pragma unroll
    for (int c = 0; c < 2; ++c)
      two[c] = (at & 4 ? four[c + 2] : four[c]) +
               __shfl_xor_sync(0xFFFFFFFFu, at & 4 ? four[c] : four[c + 2], 4);
    float one =
        (at & 2 ? two[1] : two[0]) + __shfl_xor_sync(0xFFFFFFFFu, at & 2 ? two[0] : two[1], 2);
    return one + __shfl_xor_sync(0xFFFFFFFFu, one, 1);
  }
  static __device__ int own_column() {
    const int at = lane();
    return first_column() + (at & 8) / 8 * kHalf + (at & 6) / 2;
  }
  // The lane that has the sum of column c of a half.
  static __device__ int lane_of(int half, int c) { return (lane() & 16) + 8 * half + 2 * c; }

  // One row, as HeadState::run_row, by eight warps; q and k as they come from the convolution. Each
  // warp makes them unit vectors for itself, with unit_vector's sums: that costs less than waiting
  // for a warp that does.
  __device__ void run_row(const float* q_row, const float* k_row, float* v, float decay,
                          float write) {
    const int key = lane() % 16;
    const bool odd = lane() >= 16;  // 32 inputs of unit_vector's are keys of two steps
    float k[kKeySteps], k_sum = 0, q_sum = 0;
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) k[i] = k_row[16 * i + key];
#pragma unroll
    for (int j = 0; j < kKeySteps / 2; ++j) {
      const float x = odd ? k[2 * j + 1] : k[2 * j], y = q_row[kWarp * j + lane()];
      k_sum = fmaf(x, x, k_sum);
      q_sum = fmaf(y, y, q_sum);
    }
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      k_sum += __shfl_xor_sync(0xFFFFFFFFu, k_sum, offset);
      q_sum += __shfl_xor_sync(0xFFFFFFFFu, q_sum, offset);
    }
    const float k_factor = rsqrtf(k_sum + kUnitEpsilon);
    const float q_factor = rsqrtf(q_sum + kUnitEpsilon) * rsqrtf(static_cast<float>(kKeys));
    float predicted[2][4] = {}, o[2][4] = {};
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
      k[i] *= k_factor;
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          s[half][i][c] *= decay;
          predicted[half][c] = fmaf(s[half][i][c], k[i], predicted[half][c]);
        }
    }
    const float own = write * (v[own_column()] - key_sum(predicted));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float change[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) change[c] = __shfl_sync(0xFFFFFFFFu, own, lane_of(half, c));
#pragma unroll
      for (int i = 0; i < kKeySteps; ++i) {
        const float q = q_row[16 * i + key] * q_factor;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          s[half][i][c] = fmaf(k[i], change[c], s[half][i][c]);
          o[half][c] = fmaf(s[half][i][c], q, o[half][c]);
        }
      }
    }
    const float out = key_sum(o);
    __syncwarp();  // the row's v has been read
    if (lane() % 2 == 0) v[own_column()] = out;
  }

  // What keep() left at `shared`, into memory; behind a barrier.
  static __device__ void store(const DeltaArgs& a, int slot, int head, const float* shared) {
    float* const memory = memory_of(a, slot, head);
#pragma unroll 4
    for (int key = static_cast<int>(threadIdx.x) / kWarp; key < kKeys; key += 8)
      *reinterpret_cast<float4*>(memory + key * kColumns + 4 * lane()) =
          *reinterpret_cast<const float4*>(shared + key * kPitch + 4 * lane());
  }
};

// By one warp: takes the gates of `rows` rows' outputs, from `column` on, which are projected last.
__device__ inline void take_gates(const Arrivals& in, int rows, int column,
                                  ArrivingHeadMemory& memory) {
  const int at = 4 * (static_cast<int>(threadIdx.x) % kWarp);
#pragma unroll 1
  for (int r = 0; r < rows; ++r) {
    uint64_t first, second;
    do first = in.ask(r, column + at), second = in.ask(r, column + at + 2);
    while (!in.has(first) || !in.has(second));
    const auto factor = [](uint64_t word, int c) {
      return silu(to_float(Arrivals::value(word, c)));
    };
    *reinterpret_cast<float4*>(memory.gate[r] + at) =
        make_float4(factor(first, 0), factor(first, 1), factor(second, 0), factor(second, 1));
  }
}

// By one warp: the gated norm of a row's outputs, as GatedNorm::write has it. A lane's four
// results, from 4 · lane on.
__device__ inline uint2 gated_norm(const float* o, const float* norm, const float* gate,
                                   float epsilon) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kColumns / kWarp; ++j) {
    const float x = o[j * kWarp + lane];
    sum = fmaf(x, x, sum);
  }
  const auto four = [&](const float* from) { return reinterpret_cast<const float4*>(from)[lane]; };
  const float4 x = four(o), by = four(norm), factor = four(gate);
  const float scale = rsqrtf(warp_sum(sum) / static_cast<float>(kColumns) + epsilon);
  return make_uint2(pack_bf16(x.x * scale * by.x * factor.x, x.y * scale * by.y * factor.y),
                    pack_bf16(x.z * scale * by.z * factor.z, x.w * scale * by.w * factor.w));
}

// The new rows of the head's channels into the tape, which words that have come still hold; behind
// the results, for nobody waits for them.
template <int kThreads>
__device__ inline void write_tape(const DeltaArgs& a, int head, const Part& part,
                                  const HeadMemory& memory, const Arrivals& in) {
  const HeadRows none(nullptr, 0);
  __nv_bfloat16* const tape = a.tape + static_cast<int64_t>(part.slot) * kTapeRows * a.channels();
#pragma unroll 1
  for (int c = static_cast<int>(threadIdx.x); c < HeadMemory::kChannels; c += kThreads) {
    const HeadChannel at(a, none, head, head / a.sharers, c, kKeys, kColumns);
    if (!at.is_value && !memory.last_reader) continue;
#pragma unroll 1
    for (int j = 0; j < part.rows; ++j)
      tape[j * a.channels() + at.channel] = Arrivals::value(in.ask(j, at.channel), at.channel);
  }
}

}  // namespace pewter::cuda
