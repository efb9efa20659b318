// The delta rule of decode steps, and, row by row, of prefill.
//
// Convolution kernel: one thread a channel walks over the tape rows to apply and the new rows, so
// that window and tape have one reader and writer. Bytes: a few rows of channels.
//
// Rule kernel: one block a (value head, sequence), kRuleWarps warps. Columns of the state do not
// meet: warp w owns columns 8w … 8w + 7 (of each 8·kRuleWarps), a lane four of them and every 16th
// key; sums over keys are shuffles, so a row costs no barrier. The state is loaded once, tape rows
// are applied, the result stored once, and the new rows run on in registers: one load and one store
// of the state a step, 2·dk·dv·4 bytes a head, whatever the rows. Reads are 32-byte sectors.
// Precision: f32. Limits: memory for the state; latency of the row loop when rows are many.

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/delta/delta.h"

namespace pewter::cuda {
namespace {

constexpr int kTapeRows = 16;
constexpr float kUnitEpsilon = 1e-6f;  // added to the sum of squares before the root

struct Part {
  int slot, accepted, first, rows;
  int64_t scratch;  // first scratch row
};

__device__ inline Part part_of(const DeltaArgs& a, int sequence) {
  if (a.slot == nullptr) return {a.fold_slot, a.fold_accepted, 0, 0, 0};
  const int first = a.row_begin[sequence];
  return {a.slot[sequence], a.accepted[sequence], first, a.row_begin[sequence + 1] - first,
          static_cast<int64_t>(kTapeRows) * sequence + first};
}

__device__ inline void convolve_channel(const DeltaArgs& a, const Part& part, int channel) {
  const int channels = a.channels();
  __nv_bfloat16* const window = a.window + static_cast<int64_t>(part.slot) * 3 * channels + channel;
  __nv_bfloat16* const tape =
      a.tape + static_cast<int64_t>(part.slot) * kTapeRows * channels + channel;
  const float4 taps = *reinterpret_cast<const float4*>(a.conv + 4 * channel);
  __nv_bfloat16 last[3] = {window[0], window[channels], window[2 * channels]};
  float* mixed = a.mixed + part.scratch * channels + channel;
  const auto push = [&](__nv_bfloat16 value) {
    const float sum = fmaf(taps.w, to_float(value),
                           fmaf(taps.z, to_float(last[2]),
                                fmaf(taps.y, to_float(last[1]), taps.x * to_float(last[0]))));
    *mixed = silu(sum);
    mixed += channels;
    last[0] = last[1];
    last[1] = last[2];
    last[2] = value;
  };
  for (int i = 0; i < part.accepted; ++i) push(tape[i * channels]);
  const auto keep_window = [&] {
    for (int i = 0; i < 3; ++i) window[i * channels] = last[i];
  };
  if (!a.is_prefill && part.accepted > 0) keep_window();
  const __nv_bfloat16* in = a.in + part.first * a.in_stride + channel;
  for (int i = 0; i < part.rows; ++i, in += a.in_stride) {
    const __nv_bfloat16 value = *in;
    push(value);
    if (!a.is_prefill) tape[i * channels] = value;
  }
  if (a.is_prefill) keep_window();
}

__device__ inline void gate_head(const DeltaArgs& a, const Part& part, int head) {
  const int heads = a.value_heads;
  float* const tape = a.gates + static_cast<int64_t>(part.slot) * kTapeRows * 2 * heads;
  float* mixed = a.mixed_gates + part.scratch * 2 * heads;
  for (int i = 0; i < part.accepted; ++i, mixed += 2 * heads) {
    mixed[head] = tape[i * 2 * heads + head];
    mixed[heads + head] = tape[(i * 2 + 1) * heads + head];
  }
  const float rate = -expf(a.a_log[head]), bias = a.dt_bias[head];
  const __nv_bfloat16* in =
      a.in + part.first * a.in_stride + a.channels() + heads * a.value_dim + head;
  for (int i = 0; i < part.rows; ++i, in += a.in_stride, mixed += 2 * heads) {
    const float decay = rate * softplus(to_float(in[heads]) + bias);
    const float write = sigmoid(to_float(in[0]));
    mixed[head] = decay;
    mixed[heads + head] = write;
    if (a.is_prefill) continue;
    tape[i * 2 * heads + head] = decay;
    tape[(i * 2 + 1) * heads + head] = write;
  }
}

__global__ void __launch_bounds__(128) convolution_kernel(const __grid_constant__ DeltaArgs a) {
  start_next();
  wait_for_inputs();
  const Part part = part_of(a, blockIdx.y);
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread < a.channels())
    convolve_channel(a, part, thread);
  else if (thread < a.channels() + a.value_heads)
    gate_head(a, part, thread - a.channels());
}

constexpr int kRuleWarps = 16, kRuleThreads = kRuleWarps * kWarp;
constexpr int kColumns = 8 * kRuleWarps;  // value columns a block covers
constexpr int kKeySteps = 8;              // keys a lane owns: key dimensions up to 128
constexpr int kChunk = 32;                // rows whose q, k, v are in shared memory together

// Rows of the convolution's result for one head pair with q and k made unit vectors.
struct Chunk {
  float q[kChunk][16 * kKeySteps], k[kChunk][16 * kKeySteps];
  float v[kChunk][kColumns];  // later the outputs
  float decay[kChunk], write[kChunk];
};

// Scratch rows first … first + rows − 1.
__device__ inline void load_chunk(const DeltaArgs& a, int64_t first, int rows, int head,
                                  Chunk& chunk) {
  const int dk = a.key_dim, dv = a.value_dim, channels = a.channels();
  const int key_head = head / (a.value_heads / a.key_heads);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int i = threadIdx.x; i < rows * kColumns; i += kRuleThreads) {
    const int row = i / kColumns, c = i % kColumns;
    const float* from = a.mixed + (first + row) * channels + 2 * a.key_heads * dk + head * dv;
    chunk.v[row][c] = c < dv ? from[c] : 0.0f;
  }
  for (int row = threadIdx.x; row < rows; row += kRuleThreads) {
    const float* gates = a.mixed_gates + (first + row) * 2 * a.value_heads + head;
    chunk.decay[row] = expf(gates[0]);
    chunk.write[row] = gates[a.value_heads];
  }
  constexpr int kParts = 16 * kKeySteps / kWarp;
  for (int i = warp; i < 2 * rows; i += kRuleWarps) {
    const int row = i / 2;
    const bool is_k = i % 2 == 1;
    const float* from =
        a.mixed + (first + row) * channels + (is_k ? a.key_heads + key_head : key_head) * dk;
    float x[kParts], sum = 0;
#pragma unroll
    for (int j = 0; j < kParts; ++j) x[j] = j * kWarp + lane < dk ? from[j * kWarp + lane] : 0.0f;
#pragma unroll
    for (int j = 0; j < kParts; ++j) sum = fmaf(x[j], x[j], sum);
    float factor = 1.0f / sqrtf(warp_sum(sum) + kUnitEpsilon);
    if (!is_k) factor /= sqrtf(static_cast<float>(dk));
    float* const to = is_k ? chunk.k[row] : chunk.q[row];
#pragma unroll
    for (int j = 0; j < kParts; ++j) to[j * kWarp + lane] = x[j] * factor;
  }
}

// Sum over the 16 lanes that share columns: lane = 2·key + column half.
__device__ inline float key_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 1; offset /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, offset);
  return x;
}

__device__ inline void run_row(const Chunk& chunk, int row, int column, int key,
                               float (&s)[kKeySteps][4], float (&o)[4]) {
  const float decay = chunk.decay[row], write = chunk.write[row];
  float predicted[4] = {}, k[kKeySteps], q[kKeySteps];
#pragma unroll
  for (int i = 0; i < kKeySteps; ++i) {
    k[i] = chunk.k[row][16 * i + key];
    q[i] = chunk.q[row][16 * i + key];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      s[i][c] *= decay;
      predicted[c] = fmaf(s[i][c], k[i], predicted[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const float change = write * (chunk.v[row][column + c] - key_sum(predicted[c]));
    o[c] = 0;
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
      s[i][c] = fmaf(k[i], change, s[i][c]);
      o[c] = fmaf(s[i][c], q[i], o[c]);
    }
    o[c] = key_sum(o[c]);
  }
}

// Gated norm of the outputs of rows first … of the step, which are chunk rows `skip` …; a warp a
// row.
__device__ inline void write_rows(const DeltaArgs& a, int64_t first, int rows, int skip, int head,
                                  const Chunk& chunk) {
  constexpr int kParts = kColumns / kWarp;
  const int dv = a.value_dim, lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int row = warp; row < rows; row += kRuleWarps) {
    const float* o = chunk.v[skip + row];
    const __nv_bfloat16* z = a.in + (first + row) * a.in_stride + a.channels() + head * dv;
    __nv_bfloat16* out = a.out + (first + row) * a.out_stride + head * dv;
    float gate[kParts], norm[kParts], sum = 0;
#pragma unroll
    for (int j = 0; j < kParts; ++j) {
      const int c = j * kWarp + lane;
      gate[j] = c < dv ? to_float(z[c]) : 0.0f;
      norm[j] = c < dv ? a.norm[c] : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kParts; ++j) {
      const float x = j * kWarp + lane < dv ? o[j * kWarp + lane] : 0.0f;
      sum = fmaf(x, x, sum);
    }
    const float scale = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(dv) + a.epsilon);
#pragma unroll
    for (int j = 0; j < kParts; ++j) {
      const int c = j * kWarp + lane;
      if (c < dv) out[c] = __float2bfloat16(o[c] * scale * norm[j] * silu(gate[j]));
    }
  }
}

__global__ void __launch_bounds__(kRuleThreads) rule_kernel(const __grid_constant__ DeltaArgs a) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  Chunk& chunk = *reinterpret_cast<Chunk*>(shared_memory);
  start_next();
  const int head = blockIdx.x, dk = a.key_dim, dv = a.value_dim;
  const Part part = part_of(a, blockIdx.y);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int key = lane / 2, column = 8 * warp + 4 * (lane % 2);

  float* const state = a.state + (static_cast<int64_t>(part.slot) * a.value_heads + head) * dk * dv;
  const bool whole = dv % 4 == 0;
  float s[kKeySteps][4];
#pragma unroll
  for (int i = 0; i < kKeySteps; ++i) {
    const float* from = state + (16 * i + key) * dv + column;
    const bool inside = 16 * i + key < dk;
    if (inside && whole && column < dv) {
      const float4 four = *reinterpret_cast<const float4*>(from);
      s[i][0] = four.x, s[i][1] = four.y, s[i][2] = four.z, s[i][3] = four.w;
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) s[i][c] = inside && column + c < dv ? from[c] : 0.0f;
    }
  }
  wait_for_inputs();  // the state was written by another step, long done
  const auto store = [&] {
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
      float* to = state + (16 * i + key) * dv + column;
      if (16 * i + key >= dk) continue;
      if (whole && column < dv) {
        *reinterpret_cast<float4*>(to) = make_float4(s[i][0], s[i][1], s[i][2], s[i][3]);
      } else {
        for (int c = 0; c < 4; ++c)
          if (column + c < dv) to[c] = s[i][c];
      }
    }
  };

  // Tape rows and new ones in one run; between them the state is what is committed.
  const int all = part.accepted + part.rows;
  for (int begin = 0; begin < all; begin += kChunk) {
    const int rows = min(kChunk, all - begin), skip = min(max(part.accepted - begin, 0), rows);
    if (begin > 0) __syncthreads();
    load_chunk(a, part.scratch + begin, rows, head, chunk);
    __syncthreads();
    for (int row = 0; row < rows; ++row) {
      float o[4];
      run_row(chunk, row, column, key, s, o);
      if (begin + row + 1 == part.accepted && !a.is_prefill) store();
      __syncwarp();  // the row's v has been read
      if (key == 0)
#pragma unroll
        for (int c = 0; c < 4; ++c) chunk.v[row][column + c] = o[c];
    }
    __syncthreads();
    write_rows(a, part.first + begin + skip - part.accepted, rows - skip, skip, head, chunk);
  }
  if (a.is_prefill) store();
}

}  // namespace

void delta_mix(cudaStream_t stream, const DeltaArgs& args) {
  CHECK(args.key_dim <= 16 * kKeySteps && args.value_dim <= kColumns, "delta heads of ",
        args.key_dim, " and ", args.value_dim, " are wider than ", kColumns);
  static const bool prepared = [] {
    CUDA_CHECK(cudaFuncSetAttribute(rule_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    sizeof(Chunk)));
    return true;
  }();
  (void)prepared;
  const int threads = args.channels() + args.value_heads;
  const auto sequences = static_cast<unsigned>(args.sequences);
  // The rule reads the state before it waits: safe behind a step, which begins with a copy that
  // waits for all before it, and behind this launch in order when there was none.
  launch(args.slot == nullptr ? Start::kInOrder : Start::kEarly, stream,
         dim3(static_cast<unsigned>((threads + 127) / 128), sequences), dim3(128), 0,
         convolution_kernel, args);
  launch(stream, dim3(static_cast<unsigned>(args.value_heads), sequences), dim3(kRuleThreads),
         sizeof(Chunk), rule_kernel, args);
}

}  // namespace pewter::cuda
