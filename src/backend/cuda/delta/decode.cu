// The delta rule of decode steps, and fold: one block of threads a (value head, sequence); head.cuh
// has what it does. Bytes: the state once in and, when tape rows were accepted, once out: 2·dk·dv·4
// a head, whatever the rows. Limits: memory for the state; then the latency from inputs to outputs
// of one row.

#include <algorithm>

#include "backend/cuda/delta/head.cuh"
#include "backend/cuda/linear/coded_rows.cuh"

namespace pewter::cuda {
namespace {

// The gated norm of the new rows' outputs, a warp a row; coded as well, where that is wanted.
template <bool kWhole>
__device__ inline void write_rows(const DeltaArgs& a, int head, const Part& part,
                                  const HeadRows& rows, const float* norm, const GatedNorm& gated) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  if (warp >= part.rows) return;
  const int dv = kWhole ? kColumns : a.value_dim;
  const int64_t row = part.first + warp;
  float* const o = rows.v + warp * kColumns;
  // The results stay in the row's place as well.
  auto* const kept = reinterpret_cast<__nv_bfloat16*>(o);
  gated.write(o, norm, a.epsilon, dv, a.out + row * a.out_stride + head * dv, kept);
  if (!kWhole || a.codes == nullptr) return;
  // The head is one group of the row; the second sixteen lanes repeat it.
  __syncwarp();
  const int at = head * kColumns + lane % 16 * 8, width = a.value_heads * kColumns;
  const uint4 eight = *reinterpret_cast<const uint4*>(kept + lane % 16 * 8);
  code_inputs(eight, at, lane < 16, width, a.codes + row * row_pitch(width), a.halves);
}

template <bool kWhole>
__global__ void __launch_bounds__(kRuleThreads, register_blocks(2))
    decode_kernel(const __grid_constant__ DeltaArgs a, int row_capacity) {
  extern __shared__ __align__(16) float row_memory[];
  __shared__ HeadMemory memory;
  start_next();
  const auto head = static_cast<int>(blockIdx.x), sequence = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const Part part = part_of(a, sequence);
  struct Beside {
    const DeltaArgs& a;
    int head, sequence;
    __device__ void count(HeadMemory& of) const {
      if (threadIdx.x == 0) count_reader(a, sequence, head / a.sharers, of);
    }
    __device__ void known() const {}
    __device__ void end() const { __syncthreads(); }
  };
  GatedNorm gated;
  run_head<kWhole, kRuleThreads>(
      a, head, part, row_capacity, row_memory, memory,
      [&](int slot) { return HeadState<kWhole>(a, slot, head); },
      [&] {
        wait_for_inputs();
        return GivenRows{a.in + part.first * a.in_stride, a.in_stride};
      },
      [&](const GivenRows& in) {
        const int dv = kWhole ? kColumns : a.value_dim;
        if (warp < part.rows) gated.load_gate(in, warp, a.channels() + head * dv, dv);
      },
      Beside{a, head, sequence}, BlockBarrier());
  write_rows<kWhole>(a, head, part, HeadRows(row_memory, row_capacity), memory.norm, gated);
}

}  // namespace

bool can_code(const DeltaArgs& args) { return is_whole(args) && args.out_stride % 8 == 0; }

void delta_decode(cudaStream_t stream, const DeltaArgs& args) {
  CHECK(args.key_dim <= kKeys && args.value_dim <= kColumns, "delta heads of ", args.key_dim,
        " and ", args.value_dim, " are wider than ", kColumns);
  const bool fold = args.slot == nullptr;
  const int rows = fold ? args.fold_accepted : std::max(args.tape_rows, args.most_rows);
  // The kernel reads the state before it waits: safe in a step, whose first kernel lets nobody
  // start before the step before has ended (embed_kernel). A fold has no such kernel.
  launch(fold ? Start::kInOrder : Start::kEarly, stream,
         dim3(static_cast<unsigned>(args.value_heads), static_cast<unsigned>(args.sequences)),
         dim3(kRuleThreads), static_cast<size_t>(rows * HeadRows::kFloats * 4),
         is_whole(args) ? decode_kernel<true> : decode_kernel<false>, args, rows);
}

}  // namespace pewter::cuda
