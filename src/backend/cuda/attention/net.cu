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

// Of the last position: key, value, and scratch for the one of them.
struct Newest {
  __align__(16) __nv_bfloat16 key[kHead], value[kHead];
  float scratch[kHead];
};
constexpr int64_t kMixerBytes = int64_t{NetShares::kBytes} + int64_t{sizeof(Newest)};
static_assert(sizeof(MergeMemory) <= NetShares::kBytes);
static_assert(sizeof(Exchange) * 2 * NetShares::kExchanged >= kFlowWarps * kHead * sizeof(float));

// By all threads: the row's projections, as they arrive.
__device__ inline Arrivals arriving(const NetProducts& a) {
  wait_for_inputs();
  start_next();
  return {a.arrivals, a.arrival_pairs, static_cast<uint32_t>(__ldcg(a.words + kLaunch)) + 1};
}

// A lane's share of a head, dimensions l + 32·j: asked for, then taken.
struct HeadWords {
  uint64_t word[kHeadEach];

  __device__ HeadWords(const Arrivals& in, int column) {
#pragma unroll
    for (int j = 0; j < kHeadEach; ++j) word[j] = in.ask(0, column_of(column, j));
  }
  __device__ void take(const Arrivals& in, int column, __nv_bfloat16 (&to)[kHeadEach]) const {
#pragma unroll
    for (int j = 0; j < kHeadEach; ++j) to[j] = in.take(word[j], 0, column_of(column, j));
  }
  static __device__ int column_of(int first, int j) {
    return first + static_cast<int>(threadIdx.x) % kWarp + j * kWarp;
  }
};

// What attend_items wants to know of the row.
struct ArrivingRow {
  static constexpr bool kAllCached = false;
  const AttentionNet& a;
  int kv_head;
  Newest& newest;

  __device__ void sync() const { sync_flow(); }
  __device__ void wait() const {}

  __device__ Rotation<1> rotation() const {
    const PrepareArgs& p = a.prepare;
    const int delta = p.position_delta[0];
    return {p, [&](int axis) { return p.positions[axis] + delta; }};
  }
  static __device__ void load_norm(const float* norm, float (&weight)[kHeadEach]) {
#pragma unroll
    for (int j = 0; j < kHeadEach; ++j) weight[j] = norm[HeadWords::column_of(0, j)];
  }

  // By the eight warps; the ninth brings the newest position meanwhile.
  __device__ void prepare(__nv_bfloat16* queries, void* scratch) const {
    const PrepareArgs& p = a.prepare;
    const int heads = p.shape.query_heads / p.shape.kv_heads;
    const int lane = static_cast<int>(threadIdx.x) % kWarp,
              warp = static_cast<int>(threadIdx.x) / kWarp;
    float weight[kHeadEach];
    load_norm(p.q_norm, weight);
    const Arrivals in = arriving(a);
    const Rotation<1> turned = rotation();
    float* const x = static_cast<float*>(scratch) + warp * kHead;
#pragma unroll 1
    for (int head = warp; head < heads; head += kFlowWarps) {
      const int column = (kv_head * heads + head) * 2 * kHead;
      __nv_bfloat16 given[kHeadEach];
      HeadWords(in, column).take(in, column, given);
      prepare_head(p, kHead, given, weight, turned, x);
#pragma unroll
      for (int j = 0; j < kHeadEach; ++j)
        queries[head * kPitch + lane + j * kWarp] = __float2bfloat16(x[lane + j * kWarp]);
    }
    wait_for_ninth();
  }

  // By the ninth warp.
  __device__ void bring_newest() const {
    const PrepareArgs& p = a.prepare;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int of_key = (2 * p.shape.query_heads + kv_head) * kHead,
              of_value = of_key + p.shape.kv_heads * kHead;
    float weight[kHeadEach];
    load_norm(p.k_norm, weight);
    const Arrivals in = arriving(a);
    const Rotation<1> turned = rotation();
    const int64_t at =
        element_of(p.batch, p.shape, p.cache.page_bytes, 0, p.batch.context_length[0], kv_head);
    const HeadWords key_words(in, of_key), value_words(in, of_value);
    __nv_bfloat16 key[kHeadEach], value[kHeadEach];
    key_words.take(in, of_key, key);
    value_words.take(in, of_value, value);
    prepare_head(p, kHead, key, weight, turned, newest.scratch);
    auto* const keys = reinterpret_cast<__nv_bfloat16*>(p.cache.keys) + at;
    auto* const values = reinterpret_cast<__nv_bfloat16*>(p.cache.values) + at;
#pragma unroll
    for (int j = 0; j < kHeadEach; ++j) {
      const int i = lane + j * kWarp;
      keys[i] = newest.key[i] = __float2bfloat16(newest.scratch[i]);
      values[i] = newest.value[i] = value[j];
    }
  }

  // Into a row of a tile each, between barriers.
  __device__ void place(__nv_bfloat16* key, __nv_bfloat16* value) const {
    const int i = static_cast<int>(threadIdx.x) * 8;
    if (i < kHead)
      *reinterpret_cast<uint4*>(key + i) = *reinterpret_cast<const uint4*>(newest.key + i);
    else if (i < 2 * kHead)
      *reinterpret_cast<uint4*>(value + i - kHead) =
          *reinterpret_cast<const uint4*>(newest.value + i - kHead);
  }
};

__device__ inline void attention_role(const AttentionNet& a, const NetPlan& plan,
                                      unsigned char* shared_memory) {
  const int index = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int kv_heads = a.attend.shape.kv_heads;
  const int items = kv_heads * stretches_of(a.attend.batch.context_length[0] + 1);
  const ArrivingRow row{a, index % kv_heads,
                        *reinterpret_cast<Newest*>(shared_memory + NetShares::kBytes)};
  if (thread >= kStreamThreads) {
    if (index < kv_heads) row.bring_newest();  // the last stretches are the first items
    if (index < items) pass_as_ninth();
    return;
  }
  if (index < items)
    attend_items<NetShares>(a.attend, {index, plan.mixers, false}, shared_memory, row);

  const MergedHalf half{.head = index / 2, .first = index % 2 * (kHead / 2), .row = 0};
  const Arrivals in = arriving(a);
  const int gate = half.column() + (half.head + 1) * kHead;
  uint64_t word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) word[i] = in.ask(0, gate + 2 * i);
  sync_flow();
  if (thread == 0) {
    arrive_at(a.words + kMixing);
    wait_for(a.words + kMixing, plan.mixers);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) word[i] = in.take_pair(word[i], 0, gate + 2 * i);
  sync_flow();
  const uint4 gates = make_uint4(static_cast<uint32_t>(word[0]), static_cast<uint32_t>(word[1]),
                                 static_cast<uint32_t>(word[2]), static_cast<uint32_t>(word[3]));
  merge_half<kFlowWarps>(a.attend, half, gates, *reinterpret_cast<MergeMemory*>(shared_memory),
                         sync_flow);
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
