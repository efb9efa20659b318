// The delta rule of decode steps, and fold: convolution, gates, tape, rule and gated norm in one
// kernel, one block of threads a (value head, sequence).
//
// What an earlier step left is worked off before this step's inputs are waited for: the state comes
// in, accepted tape rows are convolved and applied, the state they leave goes out. Then the new
// rows run on in registers. Value heads that share a key head each convolve its channels for
// themselves; the one of them that has read the old columns last writes the new ones. Bytes: the
// state once in and, when tape rows were accepted, once out: 2·dk·dv·4 a head, whatever the rows.
// Limits: memory for the state; then the latency from inputs to outputs of one row.

#include "backend/cuda/delta/rule.cuh"
#include "backend/cuda/linear/coded_rows.cuh"

namespace pewter::cuda {
namespace {

// Rows of one head after the convolution: tape rows, then new ones.
struct Rows {
  float *q, *k, *v;      // [rows, kKeys], …, [rows, kColumns]
  float *decay, *write;  // [rows]
};
constexpr int64_t row_floats() { return 2 * kKeys + kColumns + 2; }
__device__ inline Rows rows_at(float* memory, int rows) {
  float* const k = memory + rows * kKeys;
  float* const v = k + rows * kKeys;
  float* const decay = v + rows * kColumns;
  return {memory, k, v, decay, decay + rows};
}

template <bool kWhole>
__global__ void __launch_bounds__(kRuleThreads, register_blocks(2))
    decode_kernel(const __grid_constant__ DeltaArgs a, int row_capacity) {
  extern __shared__ __align__(16) float row_memory[];
  __shared__ bool last_reader;
  __shared__ float norm[kColumns];
  __shared__ __nv_bfloat16 history[3][2 * kKeys + kColumns];  // last columns before the new rows
  start_next();
  const Rows rows = rows_at(row_memory, row_capacity);
  const int head = blockIdx.x, channels = a.channels();
  const int dk = kWhole ? kKeys : a.key_dim, dv = kWhole ? kColumns : a.value_dim;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp;
  const Part part = part_of(a, blockIdx.y);
  const int sharers = a.value_heads / a.key_heads, key_head = head / sharers;

  // Thread c's channel: of q, k, then v.
  const bool convolves = thread < 2 * dk + dv, is_value = thread >= 2 * dk;
  const int channel = thread < dk       ? key_head * dk + thread
                      : thread < 2 * dk ? (a.key_heads + key_head) * dk + thread - dk
                                        : 2 * a.key_heads * dk + head * dv + thread - 2 * dk;
  float* const place = thread < dk       ? rows.q + thread
                       : thread < 2 * dk ? rows.k + thread - dk
                                         : rows.v + thread - 2 * dk;
  const int pitch = is_value ? kColumns : kKeys;
  __nv_bfloat16* const window = a.window + static_cast<int64_t>(part.slot) * 3 * channels + channel;
  __nv_bfloat16* const tape =
      a.tape + static_cast<int64_t>(part.slot) * kTapeRows * channels + channel;
  const auto push = [&](const float4& taps, __nv_bfloat16(&last)[3], int row, __nv_bfloat16 value) {
    place[row * pitch] = convolve(taps, last, value);
    last[0] = last[1];
    last[1] = last[2];
    last[2] = value;
  };
  if (convolves) {
    const float4 taps = *reinterpret_cast<const float4*>(a.conv + 4 * channel);
    __nv_bfloat16 last[3];
    for (int i = 0; i < 3; ++i) last[i] = window[i * channels];
    for (int i = 0; i < part.accepted; ++i) push(taps, last, i, tape[i * channels]);
    for (int i = 0; i < 3; ++i) history[i][thread] = last[i];
  } else if (const int c = thread - 2 * dk; c < kColumns) {
    for (int i = 0; i < row_capacity; ++i) rows.v[i * kColumns + c] = 0;  // behind dv
  }
  if (thread < dv) norm[thread] = a.norm[thread];
  float* const gate_tape =
      a.gates + static_cast<int64_t>(part.slot) * kTapeRows * 2 * a.value_heads + head;
  if (thread < part.accepted) {
    rows.decay[thread] = expf(gate_tape[2 * thread * a.value_heads]);
    rows.write[thread] = gate_tape[(2 * thread + 1) * a.value_heads];
  }
  __syncthreads();
  int32_t* const readers = a.readers + blockIdx.y * a.key_heads + key_head;
  if (thread == 0) {
    __threadfence();
    last_reader = atomicAdd(readers, 1) == sharers - 1;
    if (last_reader) *readers = 0;
  }
  for (int i = warp; i < part.accepted; i += kRuleWarps)
    unit_vector(rows.k + i * kKeys, true, dk, rows.k + i * kKeys);
  HeadState<kWhole> state(a, part.slot, head);
  __syncthreads();
  const bool keeps = convolves && (is_value || last_reader);
  if (part.accepted > 0) {
    for (int i = 0; i < part.accepted; ++i)
      state.template run_row<false>(nullptr, rows.k + i * kKeys, rows.v + i * kColumns,
                                    rows.decay[i], rows.write[i]);
    state.store();
    if (keeps)
      for (int i = 0; i < 3; ++i) window[i * channels] = history[i][thread];
  }

  wait_for_inputs();
  const __nv_bfloat16* const in = a.in + part.first * a.in_stride;
  GatedNorm gated;
  if (warp < part.rows) gated.load_gate(in + warp * a.in_stride + channels + head * dv, dv);
  const int begin = part.accepted;
  if (convolves) {
    constexpr int kTogether = 4;
    const float4 taps = *reinterpret_cast<const float4*>(a.conv + 4 * channel);
    __nv_bfloat16 last[3] = {history[0][thread], history[1][thread], history[2][thread]};
    for (int i = 0; i < part.rows; i += kTogether) {
      __nv_bfloat16 value[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; ++j)
        if (i + j < part.rows) value[j] = in[(i + j) * a.in_stride + channel];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        if (i + j >= part.rows) continue;
        push(taps, last, begin + i + j, value[j]);
        if (keeps) tape[(i + j) * channels] = value[j];
      }
    }
  }
  if (const int row = kRuleThreads - 1 - thread; row < part.rows) {  // threads with the least to do
    const Gates gates = gates_of(in + row * a.in_stride + channels + a.value_heads * dv + head,
                                 a.value_heads, -expf(a.a_log[head]), a.dt_bias[head]);
    rows.decay[begin + row] = expf(gates.decay);
    rows.write[begin + row] = gates.write;
    gate_tape[2 * row * a.value_heads] = gates.decay;
    gate_tape[(2 * row + 1) * a.value_heads] = gates.write;
  }
  __syncthreads();
  for (int i = warp; i < 2 * part.rows; i += kRuleWarps) {
    float* const vector = (i % 2 == 1 ? rows.k : rows.q) + (begin + i / 2) * kKeys;
    unit_vector(vector, i % 2 == 1, dk, vector);
  }
  __syncthreads();
  for (int i = begin; i < begin + part.rows; ++i)
    state.template run_row<true>(rows.q + i * kKeys, rows.k + i * kKeys, rows.v + i * kColumns,
                                 rows.decay[i], rows.write[i]);
  __syncthreads();
  if (warp >= part.rows) return;
  const int64_t row = part.first + warp;
  __nv_bfloat16* const out = a.out + row * a.out_stride + head * dv;
  float* const o = rows.v + (begin + warp) * kColumns;
  // The results stay in the row's place as well.
  auto* const kept = reinterpret_cast<__nv_bfloat16*>(o);
  gated.write(o, norm, a.epsilon, dv, out, kept);
  if (!kWhole || a.codes == nullptr) return;
  // The head is one group of the row; the second sixteen lanes repeat it.
  __syncwarp();
  const int at = head * kColumns + thread % 16 * 8, width = a.value_heads * kColumns;
  const uint4 eight = *reinterpret_cast<const uint4*>(kept + thread % 16 * 8);
  code_inputs(eight, at, thread % kWarp < 16, width, a.codes + row * row_pitch(width));
}

}  // namespace

bool can_code(const DeltaArgs& args) { return is_whole(args) && args.out_stride % 8 == 0; }

void delta_decode(cudaStream_t stream, const DeltaArgs& args) {
  CHECK(args.key_dim <= kKeys && args.value_dim <= kColumns, "delta heads of ", args.key_dim,
        " and ", args.value_dim, " are wider than ", kColumns);
  const bool fold = args.slot == nullptr;
  const int rows = fold ? args.fold_accepted : args.tape_rows + args.most_rows;
  // The kernel reads the state before it waits: safe behind a step, which begins with a copy that
  // waits for all before it, and behind this launch in order when there was none.
  launch(fold ? Start::kInOrder : Start::kEarly, stream,
         dim3(static_cast<unsigned>(args.value_heads), static_cast<unsigned>(args.sequences)),
         dim3(kRuleThreads), static_cast<size_t>(rows * row_floats() * 4),
         is_whole(args) ? decode_kernel<true> : decode_kernel<false>, args, rows);
}

}  // namespace pewter::cuda
