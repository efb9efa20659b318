// The attention block of one row in one kernel (linear/net.cuh). The blocks of threads that mix are
// two for each query head. They ask for keys and values of their stretches from the start on, take
// the queries of a KV head as they arrive, and norm and turn them in shared memory; those with the
// last stretch bring its last position too, into the cache and into their tile. When all stretches
// are there, by a count in memory (grid_sync.cuh), each adds the partial results of half a head.
//
// Split of work, order of sums, precision: as in linear/stream.cu, prepare_kernel, split.cu and
// merge.cu, whose bits these are. Bytes: weights once, keys and values once, partial results of a
// stretch (query heads × 260 × 4) written and read. Limits: the latency of the three waits; behind
// a long context the few blocks of threads that attend, so that it is for short ones.

#include "backend/cuda/attention/merge.cuh"
#include "backend/cuda/attention/net.h"
#include "backend/cuda/attention/prepare.cuh"
#include "backend/cuda/attention/stretch.cuh"
#include "backend/cuda/linear/net.cuh"

namespace pewter::cuda {
namespace {

// Query rows in shared memory, so that two blocks of threads share a multiprocessor's registers.
using NetShares = StretchShares<1, false>;
constexpr int kMostQueries = 16;  // of a KV head

// What the blocks of threads that mix share besides. Of the last position key, value, and scratch
// for the one of them.
struct MixerMemory {
  MergeMemory merge;
  __align__(16) __nv_bfloat16 key[kHead], value[kHead];
  float scratch[kHead];
};
constexpr int64_t kMixerBytes = int64_t{NetShares::kBytes} + int64_t{sizeof(MixerMemory)};
static_assert(sizeof(Exchange) * 2 * NetShares::kExchanged >= kFlowWarps * kHead * sizeof(float));

// Words of a row that arrives, the lane's kCount, every kStep columns. Unless is_real they are not
// waited for: a rehearsal.
template <int kCount, int kStep>
struct LaneWords {
  uint64_t word[kCount];

  __device__ LaneWords(const Arrivals& in, int column) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) word[j] = in.ask(0, column + j * kStep);
  }
  __device__ void wait(const Arrivals& in, int column, bool is_real) {
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      while (is_real && static_cast<uint32_t>(word[j] >> 32) != in.number)
        word[j] = in.ask(0, column + j * kStep);
  }
};
// Dimensions l + 32·j of a head.
struct HeadWords : LaneWords<kHeadEach, kWarp> {
  using LaneWords::LaneWords;
  __device__ void take(const Arrivals& in, int column, bool is_real,
                       __nv_bfloat16 (&to)[kHeadEach]) {
    wait(in, column, is_real);
#pragma unroll
    for (int j = 0; j < kHeadEach; ++j) to[j] = in.value_of(word[j], column);  // steps are even
  }
};

// What attend_items wants to know of the row.
struct ArrivingRow {
  static constexpr bool kAllCached = false, kRehearses = true;
  const AttentionNet& a;
  const Arrivals& in;
  int kv_head;
  MixerMemory& memory;

  __device__ void sync() const { sync_flow(); }
  __device__ void wait() const {}

  static __device__ int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  __device__ Rotation<1> rotation() const {
    const PrepareArgs& p = a.prepare;
    const int delta = p.position_delta[0];
    return {p, [&](int axis) { return p.positions[axis] + delta; }};
  }
  static __device__ void load_norm(const float* norm, float (&weight)[kHeadEach]) {
#pragma unroll
    for (int j = 0; j < kHeadEach; ++j) weight[j] = norm[lane() + j * kWarp];
  }

  // By the eight warps; the ninth brings the last position meanwhile.
  __device__ void prepare(__nv_bfloat16* queries, void* scratch, bool is_real) const {
    const PrepareArgs& p = a.prepare;
    const int heads = p.shape.query_heads / p.shape.kv_heads;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    float weight[kHeadEach];
    load_norm(p.q_norm, weight);
    const Rotation<1> turned = rotation();
    float* const x = static_cast<float*>(scratch) + warp * kHead;
#pragma unroll 1
    for (int head = warp; head < heads; head += kFlowWarps) {
      const int column = (kv_head * heads + head) * 2 * kHead + lane();
      __nv_bfloat16 given[kHeadEach];
      HeadWords(in, column).take(in, column, is_real, given);
      prepare_head(p, kHead, given, weight, turned, x);
#pragma unroll
      for (int j = 0; j < kHeadEach; ++j)
        queries[head * kPitch + lane() + j * kWarp] = __float2bfloat16(x[lane() + j * kWarp]);
      if (!is_real) break;
    }
    if (is_real)
      wait_for_ninth();
    else
      sync_flow();
  }

  // By the ninth warp.
  __device__ void bring_last() const {
    const PrepareArgs& p = a.prepare;
    const int of_key = (2 * p.shape.query_heads + kv_head) * kHead + lane(),
              of_value = of_key + p.shape.kv_heads * kHead;
    float weight[kHeadEach];
    load_norm(p.k_norm, weight);
    const Rotation<1> turned = rotation();
    const int64_t at =
        element_of(p.batch, p.shape, p.cache.page_bytes, 0, p.batch.context_length[0], kv_head);
    auto* const keys = reinterpret_cast<__nv_bfloat16*>(p.cache.keys) + at;
    auto* const values = reinterpret_cast<__nv_bfloat16*>(p.cache.values) + at;
#pragma unroll 1
    for (int turn = 0; turn < 2; ++turn) {
      const bool is_real = turn == 1;
      HeadWords key_words(in, of_key), value_words(in, of_value);
      __nv_bfloat16 key[kHeadEach], value[kHeadEach];
      key_words.take(in, of_key, is_real, key);
      value_words.take(in, of_value, is_real, value);
      prepare_head(p, kHead, key, weight, turned, memory.scratch);
#pragma unroll
      for (int j = 0; j < kHeadEach; ++j) {
        const int i = lane() + j * kWarp;
        memory.key[i] = __float2bfloat16(memory.scratch[i]);
        memory.value[i] = value[j];
        if (is_real) keys[i] = memory.key[i], values[i] = value[j];
      }
    }
  }

  // Into a row of a tile each, between barriers.
  __device__ void place(__nv_bfloat16* key, __nv_bfloat16* value) const {
    const int i = static_cast<int>(threadIdx.x) * 8;
    if (i < kHead)
      *reinterpret_cast<uint4*>(key + i) = *reinterpret_cast<const uint4*>(memory.key + i);
    else if (i < 2 * kHead)
      *reinterpret_cast<uint4*>(value + i - kHead) =
          *reinterpret_cast<const uint4*>(memory.value + i - kHead);
  }
};

__device__ inline void attention_role(const AttentionNet& a, const NetPlan& plan,
                                      unsigned char* shared_memory) {
  const int index = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int kv_heads = a.attend.shape.kv_heads;
  auto& memory = *reinterpret_cast<MixerMemory*>(shared_memory + NetShares::kBytes);
  wait_for_inputs();
  start_next();
  const Arrivals in{a.arrivals, a.arrival_pairs,
                    static_cast<uint32_t>(__ldcg(a.words + kLaunch)) + 1};
  const int items = kv_heads * stretches_of(a.attend.batch.context_length[0] + 1);
  const ArrivingRow row{a, in, index % kv_heads, memory};
  if (thread >= kStreamThreads) {
    if (index < kv_heads) row.bring_last();  // the last stretches are the first items
    if (index < items) pass_as_ninth();
    return;
  }

  const MergedHalf half{.head = index / 2, .first = index % 2 * (kHead / 2), .row = 0};
  const int gate = half.column() + (half.head + 1) * kHead;
#pragma unroll 1
  for (int turn = 0; turn < 2; ++turn) {
    const bool is_real = turn == 1;  // before that a rehearsal
    if (is_real && index < items)
      attend_items<NetShares>(a.attend, {index, plan.mixers, false}, shared_memory, row);
    LaneWords<4, 2> gates(in, gate);
    sync_flow();
    if (is_real && thread == 0) {
      arrive_at(a.words + kMixing);
      wait_for(a.words + kMixing, plan.mixers);
    }
    gates.wait(in, gate, is_real);
    sync_flow();
    merge_half<kFlowWarps>(
        a.attend, half,
        make_uint4(static_cast<uint32_t>(gates.word[0]), static_cast<uint32_t>(gates.word[1]),
                   static_cast<uint32_t>(gates.word[2]), static_cast<uint32_t>(gates.word[3])),
        memory.merge, sync_flow);
  }
  __syncwarp();
  if (thread == 0) arrive_at(a.words + kMixed);
}

template <int kHeld>
__global__ void __launch_bounds__(kFlowThreads, register_blocks(kResidentBlocks))
    attention_net_kernel(const __grid_constant__ AttentionNet a,
                         const __grid_constant__ NetPlan plan) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  if (static_cast<int>(blockIdx.x) >= plan.mixers)
    stream_net<4, true, kHeld>(a, plan, shared_memory);
  else
    attention_role(a, plan, shared_memory);
  if (threadIdx.x == 0 && leave(a.words, kLaunch, kLeft, static_cast<int>(gridDim.x)))
    ++a.words[kLaunch];
}

using Kernel = void (*)(AttentionNet, NetPlan);
Kernel kernel_for(int held) {
  return held == 3   ? attention_net_kernel<3>
         : held == 2 ? attention_net_kernel<2>
                     : attention_net_kernel<0>;
}
int mixers_of(const AttentionNet& net) { return 2 * net.attend.shape.query_heads; }

}  // namespace

bool can_fuse(const Gpu& gpu, const AttentionNet& given) {
  AttentionNet net = given;
  sort_stacks(net.in);
  const AttentionShape& shape = net.attend.shape;
  if (!can_stream_net(gpu, net) || !shares_out(net) || net.in.rows != 1 ||
      net.attend.batch.sequences != 1 || !can_split(shape) ||
      shape.query_heads > kMostQueries * shape.kv_heads || net.prepare.rotary_dim > 2 * kWarp ||
      net.attend.window > 0 || mixers_of(net) * 3 > gpu.multiprocessors * kResidentBlocks)
    return false;
  const NetLaunch l = plan_net(gpu, net, mixers_of(net), kMixerBytes);
  return net_fits(l, reinterpret_cast<const void*>(kernel_for(l.held)));
}

void attention_net(cudaStream_t stream, const Gpu& gpu, const AttentionNet& net) {
  AttentionNet sorted = net;
  sort_stacks(sorted.in);
  const NetLaunch l = plan_net(gpu, sorted, mixers_of(net), kMixerBytes);
  launch(stream, dim3(static_cast<unsigned>(l.grid)), dim3(kFlowThreads),
         static_cast<size_t>(l.bytes), kernel_for(l.held), sorted, l.plan);
}

}  // namespace pewter::cuda
