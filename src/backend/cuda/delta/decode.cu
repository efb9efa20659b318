// The delta rule of decode steps, and fold: one block of threads a (value head, sequence); head.cuh
// has what it does. Bytes: the state once in and, when tape rows were accepted, once out: 2·dk·dv·4
// a head, whatever the rows. Limits: memory for the state; then the latency from inputs to outputs
// of one row.

#include <algorithm>

#include "backend/cuda/delta/head.cuh"

namespace pewter::cuda {
namespace {

template <bool kWhole>
__global__ void __launch_bounds__(kRuleThreads, register_blocks(2))
    decode_kernel(const __grid_constant__ DeltaArgs a, int row_capacity) {
  extern __shared__ __align__(16) float row_memory[];
  __shared__ HeadMemory memory;
  start_next();
  const auto head = static_cast<int>(blockIdx.x);
  struct Readers {
    const DeltaArgs& a;
    int head;
    __device__ void count(HeadMemory& of) const {
      if (threadIdx.x == 0) count_reader(a, static_cast<int>(blockIdx.y), head / a.sharers, of);
    }
    __device__ void known() const {}
  };
  decode_head<kWhole, kRuleThreads>(
      a, head, static_cast<int>(blockIdx.y), row_capacity, row_memory, memory,
      [&](int slot) { return HeadState<kWhole>(a, slot, head); },
      [&](int64_t first) {
        wait_for_inputs();
        return GivenRows{a.in + first * a.in_stride, a.in_stride};
      },
      Readers{a, head}, [] {}, BlockBarrier());
}

}  // namespace

bool can_code(const DeltaArgs& args) { return is_whole(args) && args.out_stride % 8 == 0; }

void delta_decode(cudaStream_t stream, const DeltaArgs& args) {
  CHECK(args.key_dim <= kKeys && args.value_dim <= kColumns, "delta heads of ", args.key_dim,
        " and ", args.value_dim, " are wider than ", kColumns);
  const bool fold = args.slot == nullptr;
  const int rows = fold ? args.fold_accepted : std::max(args.tape_rows, args.most_rows);
  // The kernel reads the state before it waits: safe behind a step, whose choices are brought to
  // the host by a kernel that waits for the whole step and lets nobody start before its own end;
  // and behind this launch in order when there was none.
  launch(fold ? Start::kInOrder : Start::kEarly, stream,
         dim3(static_cast<unsigned>(args.value_heads), static_cast<unsigned>(args.sequences)),
         dim3(kRuleThreads), static_cast<size_t>(rows * HeadRows::kFloats * 4),
         is_whole(args) ? decode_kernel<true> : decode_kernel<false>, args, rows);
}

}  // namespace pewter::cuda
