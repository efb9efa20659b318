// The delta block in one kernel (linear/net.cuh): the blocks of threads that mix have a value head
// each (head.cuh).
//
// Split of work, order of sums, precision: as in linear/stream.cu and delta/decode.cu, whose bits
// these are. Bytes: weights and state once. Limits: memory, and the latency of the two waits: 75 %
// of copy bandwidth for one row of the 122B on an H200.

#include <algorithm>

#include "backend/cuda/delta/arriving_head.cuh"
#include "backend/cuda/delta/net.h"
#include "backend/cuda/linear/net_one.cuh"

namespace pewter::cuda {
namespace {

// A head's block of threads.
__device__ inline void mix_head(const DeltaNet& net, const NetPlan& plan, uint8_t* shared_memory) {
  __shared__ uint64_t state_here;
  const DeltaArgs& a = net.mix;
  const int head = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  auto* const state = reinterpret_cast<float*>(shared_memory);
  float* const row_memory = state + SharedHeadState::kBytes / 4;
  auto& memory =
      *reinterpret_cast<ArrivingHeadMemory*>(row_memory + plan.row_capacity * HeadRows::kFloats);
  const Part part = part_of(a, 0);
  const auto inputs = [&] {
    wait_for_inputs();
    start_next();
    memory.number = static_cast<uint32_t>(__ldcg(net.words + kLaunch)) + 1;
    return Arrivals{net.arrivals, net.arrival_pairs, memory.number};
  };
  struct Ninth {
    __device__ void count(HeadMemory&) const { pass_ninth(); }
    __device__ void known() const { wait_for_ninth<0>(); }
    __device__ void end() const { wait_for_ninth<1>(); }
  };
  const bool is_ninth = thread >= kStreamThreads;
  if (is_ninth) {  // counts, which takes a microsecond, beside the others
    wait_as_ninth();
    if (thread == kStreamThreads) count_reader(a, 0, head / a.sharers, memory);
    __syncwarp();
    pass_as_ninth<0>();
  } else {
    run_head<true, kStreamThreads>(
        a, head, part, plan.row_capacity, row_memory, memory,
        [&](int slot) { return SharedHeadState(a, slot, head, state, &state_here, sync_flow); },
        inputs, [](const Arrivals&) {}, Ninth{}, sync_flow);
  }
  // A warp a row. The ninth has done it before any, of nothing, so that the instructions are here.
  const int warp = thread / kWarp;
  if (is_ninth || warp < part.rows) {
    const float* const o =
        is_ninth ? memory.norm : HeadRows(row_memory, plan.row_capacity).v + warp * kColumns;
    const uint2 four[] = {gated_norm(o, memory.norm, memory.gate[is_ninth ? 0 : warp], a.epsilon)};
    const int64_t row = part.first + warp;
    const int width = a.value_heads * kColumns;
    if (a.codes != nullptr)
      code_groups(four, head, 1, is_ninth ? head : head + 1, width,
                  a.codes + row * row_pitch(width));
    if (!is_ninth)
      reinterpret_cast<uint2*>(a.out + row * a.out_stride + head * kColumns)[thread % kWarp] =
          four[0];
  }
  if (is_ninth) {
    __syncwarp();  // the gates of nothing have been read
    take_gates(inputs(), part.rows, a.channels() + head * kColumns, memory);
    pass_as_ninth<1>();
    return;
  }
  sync_flow();
  // What later steps read goes behind the rows. With few rows, behind those of all heads; with one
  // the kernel would wait for whoever stores last.
  if (plan.numbered) {
    if (thread == 0) publish_number(net.mixed + head, memory.number);
  } else if (thread == 0) {
    arrive_at(net.words + kMixed);
    wait_for(net.words + kMixed, plan.mixers);
  }
  sync_flow();
  if (thread == kStreamThreads - 1) leave_net(net);
  if (part.accepted > 0) SharedHeadState::store(a, part.slot, head, state);
  write_tape<kStreamThreads>(a, head, part, memory, Arrivals{net.arrivals, net.arrival_pairs, 0});
}

// kRows: 1, up to 4, up to 8.
template <int kRows, bool kSharedOut, int kHeld>
__global__ void __launch_bounds__(kFlowThreads, register_blocks(kResidentBlocks))
    net_kernel(const __grid_constant__ DeltaNet a, const __grid_constant__ NetPlan plan) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  if (static_cast<int>(blockIdx.x) < plan.mixers)
    mix_head(a, plan, shared_memory);
  else if constexpr (kRows == 1)
    stream_net_row<kHeld>(a, plan, shared_memory);
  else
    stream_net<kRows, kSharedOut, kHeld>(a, plan, shared_memory);
}

int row_capacity(const DeltaNet& net) { return std::max(net.mix.tape_rows, net.mix.most_rows); }
int64_t head_bytes(const DeltaNet& net) {
  return SharedHeadState::kBytes + row_capacity(net) * HeadRows::kFloats * 4 +
         int64_t{sizeof(ArrivingHeadMemory)};
}
// A tape of any length has room, so that it depends on the GPU alone whether the block is one
// kernel.
static_assert(SharedHeadState::kBytes + kTapeRows * HeadRows::kFloats * 4 +
                  int64_t{sizeof(ArrivingHeadMemory)} + kOwnBytes <=
              static_cast<int64_t>(kMostSharedBytes));

// Whether the kernel for one row has it. A row of 3,072 on an H200 takes 4 % longer in it than in
// the one for few rows, whose stages are smaller; why is not known.
constexpr int kWidestOne = 2048;
bool is_one(const DeltaNet& net) { return streams_one(net) && net.in.k <= kWidestOne; }

using Kernel = void (*)(DeltaNet, NetPlan);
Kernel kernel_for(const DeltaNet& net, int held) {
  if (net.in.rows > kHeldRows)
    return shares_out(net) ? net_kernel<8, true, 0> : net_kernel<8, false, 0>;
  if (is_one(net)) return held == 2 ? net_kernel<1, true, 2> : net_kernel<1, true, 0>;
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
  NetLaunch l = plan_net(gpu, net, net.mix.value_heads, head_bytes(net), is_one(net));
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
  CHECK(!is_one(sorted) || l.held == 0 || net.norm_x != nullptr, "a row that is normalised");
  launch(stream, dim3(static_cast<unsigned>(l.grid)), dim3(kFlowThreads),
         static_cast<size_t>(l.bytes), kernel_for(sorted, l.held), sorted, l.plan);
}

}  // namespace pewter::cuda
