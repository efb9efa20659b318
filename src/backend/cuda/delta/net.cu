// The delta block in one kernel (linear/net.cuh): the blocks of threads that mix have a value head
// each (head.cuh).
//
// Split of work, order of sums, precision: as in linear/stream.cu and delta/decode.cu, whose bits
// these are. Bytes: weights and state once. Limits: memory, and the latency of the two waits: 68 %
// of copy bandwidth for one row of the 122B on an H200.

#include <algorithm>

#include "backend/cuda/delta/head.cuh"
#include "backend/cuda/delta/net.h"
#include "backend/cuda/linear/net.cuh"

namespace pewter::cuda {
namespace {

template <int kRows, bool kSharedOut, int kHeld>
__global__ void __launch_bounds__(kFlowThreads, register_blocks(kResidentBlocks))
    net_kernel(const __grid_constant__ DeltaNet a, const __grid_constant__ NetPlan plan) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const int index = static_cast<int>(blockIdx.x);
  if (index >= plan.mixers) {
    stream_net<kRows, kSharedOut, kHeld>(a, plan, shared_memory);
  } else {
    __shared__ uint64_t state_here;
    auto* const state = reinterpret_cast<float*>(shared_memory);
    float* const rows = state + SharedHeadState::kBytes / 4;
    auto& memory =
        *reinterpret_cast<ArrivingHeadMemory*>(rows + plan.row_capacity * HeadRows::kFloats);
    if (threadIdx.x >= kStreamThreads) {  // counts, which takes a microsecond, beside the others
      wait_as_ninth();
      if (threadIdx.x == kStreamThreads) count_reader(a.mix, 0, index / a.mix.sharers, memory);
      __syncwarp();
      pass_as_ninth();
      return;
    }
    struct Readers {
      __device__ void count(HeadMemory&) const { pass_ninth(); }
      __device__ void known() const { wait_for_ninth(); }
    };
    decode_head<true, kStreamThreads>(
        a.mix, index, 0, plan.row_capacity, rows, memory,
        [&](int slot) {
          return SharedHeadState(a.mix, slot, index, state, &state_here, sync_flow);
        },
        [&](int64_t) {
          wait_for_inputs();
          start_next();
          return Arrivals{a.arrivals, a.arrival_pairs,
                          static_cast<uint32_t>(__ldcg(a.words + kLaunch)) + 1};
        },
        Readers{},
        [&] {
          sync_flow();
          if (threadIdx.x == 0) arrive_at(a.words + kMixed);
        },
        sync_flow);
  }
  if (threadIdx.x == 0 && leave(a.words, kLaunch, kLeft, static_cast<int>(gridDim.x)))
    ++a.words[kLaunch];
}

int row_capacity(const DeltaNet& net) { return std::max(net.mix.tape_rows, net.mix.most_rows); }
int64_t head_bytes(const DeltaNet& net) {
  return SharedHeadState::kBytes + row_capacity(net) * HeadRows::kFloats * 4 +
         int64_t{sizeof(ArrivingHeadMemory)};
}

using Kernel = void (*)(DeltaNet, NetPlan);
Kernel kernel_for(const DeltaNet& net, int held) {
  if (net.in.rows > kHeldRows)
    return shares_out(net) ? net_kernel<8, true, 0> : net_kernel<8, false, 0>;
  if (!shares_out(net))
    return held == 3   ? net_kernel<4, false, 3>
           : held == 2 ? net_kernel<4, false, 2>
                       : net_kernel<4, false, 0>;
  return held == 3   ? net_kernel<4, true, 3>
         : held == 2 ? net_kernel<4, true, 2>
                     : net_kernel<4, true, 0>;
}

// Of a net whose matrices are sorted.
NetLaunch launch_for(const Gpu& gpu, const DeltaNet& net) {
  NetLaunch l = plan_net(gpu, net, net.mix.value_heads, head_bytes(net));
  l.plan.row_capacity = row_capacity(net);
  return l;
}

}  // namespace

bool can_fuse(const Gpu& gpu, const DeltaNet& given) {
  DeltaNet net = given;
  sort_stacks(net.in);
  if (!can_stream_net(gpu, net) || net.mix.sequences != 1 || !can_code(net.mix) ||
      net.mix.value_heads % 2 != 0 ||
      net.mix.value_heads * 3 > gpu.multiprocessors * kResidentBlocks)
    return false;
  const NetLaunch l = launch_for(gpu, net);
  return net_fits(l, reinterpret_cast<const void*>(kernel_for(net, l.held)));
}

void delta_net(cudaStream_t stream, const Gpu& gpu, const DeltaNet& net) {
  DeltaNet sorted = net;
  sort_stacks(sorted.in);
  const NetLaunch l = launch_for(gpu, sorted);
  launch(stream, dim3(static_cast<unsigned>(l.grid)), dim3(kFlowThreads),
         static_cast<size_t>(l.bytes), kernel_for(sorted, l.held), sorted, l.plan);
}

}  // namespace pewter::cuda
