// The delta rule of a prefill chunk, row by row, in two kernels.
//
// Convolution kernel: one thread a channel walks over the tape rows to apply and the new rows, so
// that window and tape have one reader and writer. Bytes: a few rows of channels. Rule kernel: one
// block of threads a (value head, sequence), the state in registers from the first row to the last.
// Limits: the latency of the row loop.

#include "backend/cuda/delta/rule.cuh"

namespace pewter::cuda {
namespace {

__device__ inline void convolve_channel(const DeltaArgs& a, const Part& part, int channel) {
  const int channels = a.channels();
  __nv_bfloat16* const window = a.window + static_cast<int64_t>(part.slot) * 3 * channels + channel;
  const __nv_bfloat16* tape =
      a.tape + static_cast<int64_t>(part.slot) * kTapeRows * channels + channel;
  const float4 taps = *reinterpret_cast<const float4*>(a.conv + 4 * channel);
  __nv_bfloat16 last[3] = {window[0], window[channels], window[2 * channels]};
  float* mixed = a.mixed + part.scratch * channels + channel;
  const auto push = [&](__nv_bfloat16 value) {
    *mixed = convolve(taps, last, value);
    mixed += channels;
    last[0] = last[1];
    last[1] = last[2];
    last[2] = value;
  };
  for (int i = 0; i < part.accepted; ++i) push(tape[i * channels]);
  const __nv_bfloat16* in = a.in + part.first * a.in_stride + channel;
  for (int i = 0; i < part.rows; ++i) push(in[i * a.in_stride]);
  for (int i = 0; i < 3; ++i) window[i * channels] = last[i];
}

__device__ inline void gate_head(const DeltaArgs& a, const Part& part, int head) {
  const int heads = a.value_heads;
  const float* const tape = a.gates + static_cast<int64_t>(part.slot) * kTapeRows * 2 * heads;
  float* mixed = a.mixed_gates + part.scratch * 2 * heads;
  for (int i = 0; i < part.accepted; ++i, mixed += 2 * heads) {
    mixed[head] = tape[i * 2 * heads + head];
    mixed[heads + head] = tape[(i * 2 + 1) * heads + head];
  }
  const float rate = -expf(a.a_log[head]), bias = a.dt_bias[head];
  const __nv_bfloat16* in =
      a.in + part.first * a.in_stride + a.channels() + heads * a.value_dim + head;
  for (int i = 0; i < part.rows; ++i, in += a.in_stride, mixed += 2 * heads) {
    const Gates gates = gates_of(in[0], in[heads], rate, bias);
    mixed[head] = gates.decay;
    mixed[heads + head] = gates.write;
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

constexpr int kChunk = 32;  // rows whose q, k, v are in shared memory together

// Rows of the convolution's result for one head pair with q and k made unit vectors.
struct Chunk {
  float q[kChunk][kKeys], k[kChunk][kKeys];
  float v[kChunk][kColumns];  // later the outputs
  float decay[kChunk], write[kChunk];
};

// Scratch rows first … first + rows − 1.
__device__ inline void load_chunk(const DeltaArgs& a, int64_t first, int rows, int head,
                                  Chunk& chunk) {
  const int dk = a.key_dim, dv = a.value_dim, channels = a.channels();
  const int key_head = head / a.sharers;
  const int warp = threadIdx.x / kWarp;
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
  for (int i = warp; i < 2 * rows; i += kRuleWarps) {
    const int row = i / 2;
    const bool is_k = i % 2 == 1;
    const float* from =
        a.mixed + (first + row) * channels + (is_k ? a.key_heads + key_head : key_head) * dk;
    unit_vector(from, is_k, dk, is_k ? chunk.k[row] : chunk.q[row]);
  }
}

template <bool kWhole>
__global__ void __launch_bounds__(kRuleThreads) rule_kernel(const __grid_constant__ DeltaArgs a) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  Chunk& chunk = *reinterpret_cast<Chunk*>(shared_memory);
  start_next();
  const int head = blockIdx.x, dv = a.value_dim, warp = static_cast<int>(threadIdx.x) / kWarp;
  const Part part = part_of(a, blockIdx.y);
  HeadState<kWhole> state(a, part.slot, head);
  GatedNorm gated;
  wait_for_inputs();  // the state was written by another step, which has ended (embed_kernel)

  const int all = part.accepted + part.rows;  // tape rows and new ones in one run
  for (int begin = 0; begin < all; begin += kChunk) {
    const int rows = min(kChunk, all - begin), skip = min(max(part.accepted - begin, 0), rows);
    if (begin > 0) __syncthreads();
    load_chunk(a, part.scratch + begin, rows, head, chunk);
    __syncthreads();
    for (int row = 0; row < rows; ++row)
      state.run_row(chunk.q[row], chunk.k[row], chunk.v[row], chunk.decay[row], chunk.write[row]);
    __syncthreads();
    for (int row = skip + warp; row < rows; row += kRuleWarps) {
      const int64_t at = part.first + begin + row - part.accepted;
      gated.load_gate(GivenRows{a.in + at * a.in_stride, a.in_stride}, 0, a.channels() + head * dv,
                      dv);
      gated.write(chunk.v[row], a.norm, a.epsilon, dv, a.out + at * a.out_stride + head * dv);
    }
  }
  state.store();
}

}  // namespace

void delta_prefill(cudaStream_t stream, const DeltaArgs& args) {
  CHECK(args.key_dim <= kKeys && args.value_dim <= kColumns, "delta heads of ", args.key_dim,
        " and ", args.value_dim, " are wider than ", kColumns);
  const int threads = args.channels() + args.value_heads;
  const auto sequences = static_cast<unsigned>(args.sequences);
  launch(stream, dim3(static_cast<unsigned>((threads + 127) / 128), sequences), dim3(128), 0,
         convolution_kernel, args);
  launch(stream, dim3(static_cast<unsigned>(args.value_heads), sequences), dim3(kRuleThreads),
         sizeof(Chunk), is_whole(args) ? rule_kernel<true> : rule_kernel<false>, args);
}

}  // namespace pewter::cuda
