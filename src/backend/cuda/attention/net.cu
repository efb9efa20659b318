// The attention block of one row in one kernel (linear/net.cuh). The blocks of threads that mix are
// two for each query head. They ask for keys and values of their stretches, take the queries of a
// KV head as they arrive, and norm and turn them in shared memory; those with the last stretch
// bring its last position too, into the cache and into their tile. When all stretches are there, by
// a count in memory (grid_sync.cuh), each adds the partial results of half a head.
//
// Split of work, order of sums, precision: as in linear/stream.cu, prepare_kernel, split.cu and
// merge.cu, whose bits these are. Bytes: weights once, keys and values once, partial results of a
// stretch (query heads × 260 × 4) written and read. Limits: the latency of the three waits; behind
// a long context the few blocks of threads that attend, so that it is for short ones. 47 % of copy
// bandwidth for one row of the 122B behind none on an H200.

#include "backend/cuda/attention/merge.cuh"
#include "backend/cuda/attention/net.h"
#include "backend/cuda/attention/prepare.cuh"
#include "backend/cuda/attention/tile.cuh"
#include "backend/cuda/linear/net_one.cuh"

namespace pewter::cuda {
namespace {

constexpr int kMostQueries = 16;  // query heads of a KV head
constexpr int kMostPages = static_cast<int>(kMostNetPositions / kPageTokens);
constexpr int kTileStages = 2;

// What a block of threads that mixes has in shared memory.
struct MixerMemory {
  Tile keys[kTileStages], values[kTileStages];
  __align__(16) __nv_bfloat16 queries[kMostQueries][kPitch];
  Exchange exchange[kTileStages][2 * kMostQueries];  // two halves of a score
  MergeMemory merge;
  __align__(16) __nv_bfloat16 key[kHead], value[kHead];  // of the last position
  float scratch[kHead];                                  // of the ninth warp
  int32_t pages[kMostPages];
  uint64_t tile_here[kTileStages];
  uint32_t number;  // of the launch, for the thread that has no register left for it
};

static_assert(sizeof(MixerMemory::exchange) >= kFlowWarps * kHead * sizeof(float));  // scratch

// Words of a row that arrives, the lane's kCount, every kStep columns from `column` on. Unless
// is_real they are not waited for: a rehearsal.
template <int kCount, int kStep>
struct LaneWords {
  uint64_t word[kCount] = {};

  __device__ void ask(const Arrivals& in, int column) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) word[j] = in.ask(0, column + j * kStep);
  }
  // Those that are not here are asked for together: one after another each would take a trip.
  __device__ void wait(const Arrivals& in, int column, bool is_real) {
    for (bool missing = is_real; missing;) {
      missing = false;
#pragma unroll
      for (int j = 0; j < kCount; ++j)
        if (!in.has(word[j])) {
          word[j] = in.ask(0, column + j * kStep);
          missing = true;
        }
    }
  }
};
// Dimensions l + 32·j of a head.
struct HeadWords : LaneWords<kHeadEach, kWarp> {
  __device__ void take(const Arrivals& in, int column, bool is_real,
                       __nv_bfloat16 (&to)[kHeadEach]) {
    wait(in, column, is_real);
#pragma unroll
    for (int j = 0; j < kHeadEach; ++j) to[j] = Arrivals::value(word[j], column);
  }
};

// The tiles of a block of threads, one after another: those of a stretch, then of one so many
// before it.
struct TileWalk {
  int stretch, step, positions;
  int position = 0, end = 0;

  __device__ TileWalk(int first_stretch, int stretch_step, int all_positions)
      : stretch(first_stretch), step(stretch_step), positions(all_positions) {
    open();
  }
  __device__ bool any() const { return stretch >= 0; }
  __device__ void next() {
    position += kTile;
    if (position < end) return;
    stretch -= step;
    open();
  }
  __device__ void open() {
    if (!any()) return;
    position = stretch_begin(stretch);
    end = min(stretch_begin(stretch + 1), positions);
  }
};

// What divisions come to.
struct MixerPlan {
  int heads;         // query heads of a KV head
  int stretch_step;  // from one of a block's stretches to the next
};

// One KV head's attention of the row, or some of its stretches, and half a head's merge.
struct Mixer {
  const AttentionNet& a;
  MixerPlan plan;
  MixerMemory& memory;
  Arrivals in;
  int thread;
  int kv_head, context = 0;

  __device__ int heads() const { return plan.heads; }
  __device__ int lane() const { return thread % kWarp; }
  __device__ int warp() const { return thread / kWarp; }

  __device__ Rotation<1> rotation() const {
    const PrepareArgs& p = a.prepare;
    const int delta = p.position_delta[0];
    return {p, [&](int axis) { return p.positions[axis] + delta; }};
  }
  __device__ void load_norm(const float* norm, float (&weight)[kHeadEach]) const {
#pragma unroll
    for (int j = 0; j < kHeadEach; ++j) weight[j] = norm[lane() + j * kWarp];
  }

  // The queries of the KV head into shared memory, by the eight warps.
  __device__ void bring_queries(bool is_real) const {
    float weight[kHeadEach];
    load_norm(a.prepare.q_norm, weight);
    const Rotation<1> turned = rotation();
    float* const x = reinterpret_cast<float*>(memory.exchange) + warp() * kHead;
    const auto column_of = [&](int head) {
      return (kv_head * heads() + head) * 2 * kHead + lane();
    };
    HeadWords words[2];  // asked for together
    words[0].ask(in, column_of(min(warp(), heads() - 1)));
    words[1].ask(in, column_of(min(warp() + kFlowWarps, heads() - 1)));
#pragma unroll 1
    for (int head = warp(); head < heads(); head += kFlowWarps) {
      __nv_bfloat16 given[kHeadEach];
      words[0].take(in, column_of(head), is_real, given);
      words[0] = words[1];
      prepare_head(a.prepare, kHead, given, weight, turned, x);
#pragma unroll
      for (int j = 0; j < kHeadEach; ++j)
        memory.queries[head][lane() + j * kWarp] = __float2bfloat16(x[lane() + j * kWarp]);
      if (!is_real) break;
    }
  }

  // The last position's key and value, into shared memory and the cache; by the ninth warp.
  __device__ void bring_last(bool is_real) const {
    const PrepareArgs& p = a.prepare;
    const int of_key = (2 * p.shape.query_heads + kv_head) * kHead + lane(),
              of_value = of_key + p.shape.kv_heads * kHead;
    float weight[kHeadEach];
    load_norm(p.k_norm, weight);
    const Rotation<1> turned = rotation();
    const int64_t at = memory.pages[context / kPagePositions] * (p.cache.page_bytes / 2) +
                       (kv_head * kPagePositions + context % kPagePositions) * kHead;
    HeadWords key_words, value_words;
    key_words.ask(in, of_key);
    value_words.ask(in, of_value);
    __nv_bfloat16 key[kHeadEach], value[kHeadEach];
    key_words.take(in, of_key, is_real, key);
    value_words.take(in, of_value, is_real, value);
    float* const x = memory.scratch;
    prepare_head(p, kHead, key, weight, turned, x);
    auto* const keys = reinterpret_cast<__nv_bfloat16*>(p.cache.keys) + at;
    auto* const values = reinterpret_cast<__nv_bfloat16*>(p.cache.values) + at;
#pragma unroll
    for (int j = 0; j < kHeadEach; ++j) {
      const int i = lane() + j * kWarp;
      memory.key[i] = __float2bfloat16(x[i]);
      memory.value[i] = value[j];
      if (is_real) keys[i] = memory.key[i], values[i] = value[j];
    }
  }
  // Into a row of a tile each, between barriers.
  __device__ void place(__nv_bfloat16* key, __nv_bfloat16* value) const {
    const int i = thread * 8;
    if (i < kHead)
      *reinterpret_cast<uint4*>(key + i) = *reinterpret_cast<const uint4*>(memory.key + i);
    else if (i < 2 * kHead)
      *reinterpret_cast<uint4*>(value + i - kHead) =
          *reinterpret_cast<const uint4*>(memory.value + i - kHead);
  }

  // The walk's tile as far as the cache has it, then the next one's turn. All threads arrive at the
  // stage's barrier when it is here.
  __device__ void request(TileWalk& walk, int stage) const {
    if (!walk.any()) return;
    const PagedCache& cache = a.attend.cache;
    const int64_t page = memory.pages[walk.position / kPagePositions];
    const int64_t from =
        page * cache.page_bytes +
        (kv_head * kPagePositions + walk.position % kPagePositions + warp()) * kHead * 2 +
        lane() * 16;
#pragma unroll
    for (int i = 0; i < kTile; i += kStretchWarps) {
      const int position = walk.position + warp() + i;
      if (position == context) continue;
      // Past the end lies what another sequence left there; a weight of 0 does not silence a NaN.
      const bool wanted = position < context;
      copy_async(shared_address(&memory.keys[stage][warp() + i][lane() * 8]),
                 cache.keys + from + i * kHead * 2, wanted);
      copy_async(shared_address(&memory.values[stage][warp() + i][lane() * 8]),
                 cache.values + from + i * kHead * 2, wanted);
    }
    arrive_with_copies(shared_address(&memory.tile_here[stage]));
    walk.next();
  }

  // This block's stretches.
  __device__ void attend(TileWalk walk, bool is_real) const {
    const int g = lane() / 4, t = lane() % 4, first_dimension = kHead / kStretchWarps * warp();
    const int first_scored = warp() % 4 * 8, scored_half = warp() / 4;
    constexpr float kScale = 1.4426950408889634f / 16;  // the root of kHead
    TileWalk requested = walk;
    Exchange* exchange = memory.exchange[0];
    int tile = 0;  // of all stretches
#pragma unroll 1
    while (walk.any()) {
      const int stretch = walk.stretch;
      Softmax<1> softmax([&](int query) { return query < heads() ? context + 1 : 0; });
      ValueSums<kHead / kStretchWarps> sums;
#pragma unroll 1
      do {
        const int stage = tile % kTileStages;
        auto& keys = memory.keys[stage];
        auto& values = memory.values[stage];
        exchange = memory.exchange[stage];
        if (is_real) {
          wait_barrier(shared_address(&memory.tile_here[stage]), tile / kTileStages % 2);
          if (const int row = context - walk.position; row < kTile) {
            place(keys[row], values[row]);
            sync_flow();
          }
        }
        float scores[1][1][4];
        score(
            scores,
            [&](Fragment& q, int, int i) {
              load_matrices(q, &memory.queries[lane() % 16][lane() / 16 * 8 +
                                                            scored_half * (kHead / 2) + 16 * i]);
            },
            keys[first_scored] + scored_half * (kHead / 2));
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<float2*>(exchange[16 * scored_half + g + 8 * half].scores +
                                     first_scored + 2 * t) =
              make_float2(scores[0][0][2 * half], scores[0][0][2 * half + 1]);
        sync_flow();  // all scores are there; nobody needs the tile before
        // The first two tiles have been requested.
        if (tile == 0) requested.next(), requested.next();
        if (is_real && tile > 0) request(requested, (tile + 1) % kTileStages);
        softmax.weigh<2>(exchange, walk.position, kScale);
        sync_flow();
        sums.add(exchange, values[0], first_dimension);
        ++tile;
        walk.next();
      } while (is_real && walk.stretch == stretch);
      softmax.finish(exchange);
      sync_flow();
      int record[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = g + 8 * half;
        record[half] = query < heads() && is_real
                           ? stretch * a.attend.shape.query_heads + kv_head * heads() + query
                           : -1;
      }
      sums.store(a.attend.partials, exchange, record, first_dimension);
      if (!is_real) break;
    }
  }
};

__device__ inline void attention_role(const AttentionNet& a, const NetPlan& plan,
                                      const MixerPlan& mixer_plan, unsigned char* shared_memory) {
  const int kv_heads = a.attend.shape.kv_heads;
  // What the step before left in the cache is asked for at once, or it would come behind the
  // weights. That step has ended: none of the kernels behind the next one's first starts before
  // (embed_kernel).
  auto& first_memory = *reinterpret_cast<MixerMemory*>(shared_memory);
  const int context = __ldcg(a.attend.batch.context_length), stretches = stretches_of(context + 1);
  if (threadIdx.x < kTileStages)
    init_barrier<kStretchThreads>(shared_address(&first_memory.tile_here[threadIdx.x]));
  if (static_cast<int>(threadIdx.x) <= context / kPagePositions)
    first_memory.pages[threadIdx.x] = __ldcg(a.attend.batch.page_table + threadIdx.x);
  __syncthreads();
  const auto walk_of = [&](int index) {  // the last stretches are the first items
    return TileWalk(stretches - 1 - index / kv_heads, mixer_plan.stretch_step, context + 1);
  };
  if (threadIdx.x < kStreamThreads) {
    const int index = static_cast<int>(blockIdx.x);
    TileWalk walk = walk_of(index);
    const Mixer mixer{.a = a,
                      .plan = mixer_plan,
                      .memory = first_memory,
                      .in = {},
                      .thread = static_cast<int>(threadIdx.x),
                      .kv_head = index % kv_heads,
                      .context = context};
#pragma unroll 1
    for (int stage = 0; stage < kTileStages; ++stage) mixer.request(walk, stage);
  }

  // First a rehearsal with whatever lies there, while the projections are at work, so that the
  // instructions are here when the row is.
#pragma unroll 1
  for (int turn = 0; turn < 2; ++turn) {
    const bool is_real = turn == 1;
    // Or the compiler keeps addresses from one turn to the other, for which there is no room.
    int thread = static_cast<int>(threadIdx.x), index = static_cast<int>(blockIdx.x);
    unsigned char* own_memory = shared_memory;
    asm volatile("" : "+r"(thread), "+r"(index), "+l"(own_memory));
    const bool is_ninth = thread >= kStreamThreads;
    Mixer mixer{.a = a,
                .plan = mixer_plan,
                .memory = *reinterpret_cast<MixerMemory*>(own_memory),
                .in = {a.arrivals, a.arrival_pairs, 0},
                .thread = thread,
                .kv_head = index % kv_heads,
                .context = context};
    const TileWalk walk = walk_of(index);
    if (is_real) {
      wait_for_inputs();
      start_next();
      mixer.in.number = static_cast<uint32_t>(__ldcg(a.words + kLaunch)) + 1;
      if (thread == 0) mixer.memory.number = mixer.in.number;
    }
    if (is_ninth) {
      if (index < kv_heads) mixer.bring_last(is_real);
      if (is_real) {
        if (walk.any()) pass_as_ninth<0>();
        return;
      }
      continue;
    }
    if (walk.any()) {
      mixer.bring_queries(is_real);
      if (is_real)
        wait_for_ninth<0>();
      else
        sync_flow();
      mixer.attend(walk, is_real);
    }
    MergedHalf half{
        .head = index / 2, .first = index % 2 * (kHead / 2), .row = 0, .stretches = stretches};
    half.partials = a.attend.partials + half.head * kPartial;
    half.step = static_cast<int64_t>(a.attend.shape.query_heads) * kPartial;
    const int gate = half.column() + (half.head + 1) * kHead;
    LaneWords<4, 2> gates;
    const bool merges = thread < kWarp;  // the others help and leave the writing to them
    if (merges) gates.ask(mixer.in, gate);
    sync_flow();
    if (is_real && thread == 0) {
      const int mixing = min(kv_heads * stretches, plan.mixers);
      if (index < mixing) arrive_at(a.words + kAttended);
      wait_for(a.words + kAttended, mixing);
    }
    if (merges) gates.wait(mixer.in, gate, is_real);
    sync_flow();
    merge_half<kFlowWarps>(
        a.attend, half,
        make_uint4(static_cast<uint32_t>(gates.word[0]), static_cast<uint32_t>(gates.word[1]),
                   static_cast<uint32_t>(gates.word[2]), static_cast<uint32_t>(gates.word[3])),
        mixer.memory.merge, sync_flow, is_real);
  }
  __syncwarp();
  if (threadIdx.x == 0) {
    publish_number(a.mixed + blockIdx.x, first_memory.number);
    leave_net(a);
  }
}

template <int kHeld>
__global__ void __launch_bounds__(kFlowThreads, register_blocks(kResidentBlocks))
    attention_net_kernel(const __grid_constant__ AttentionNet a,
                         const __grid_constant__ NetPlan plan,
                         const __grid_constant__ MixerPlan mixer_plan) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  if (static_cast<int>(blockIdx.x) >= plan.mixers)
    stream_net_row<kHeld>(a, plan, shared_memory);
  else
    attention_role(a, plan, mixer_plan, shared_memory);
}

using Kernel = void (*)(AttentionNet, NetPlan, MixerPlan);
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
  if (!can_stream_net(gpu, net) || !streams_one(net) || net.attend.batch.sequences != 1 ||
      !can_split(shape) || shape.query_heads > kMostQueries * shape.kv_heads ||
      shape.query_heads % shape.kv_heads != 0 || net.prepare.rotary_dim > 2 * kWarp ||
      net.attend.window > 0 || mixers_of(net) * 3 > gpu.multiprocessors * kResidentBlocks)
    return false;
  const NetLaunch l = plan_net(gpu, net, mixers_of(net), int64_t{sizeof(MixerMemory)}, true);
  return net_fits(l, reinterpret_cast<const void*>(kernel_for(l.held)));
}

void attention_net(cudaStream_t stream, const Gpu& gpu, const AttentionNet& net) {
  const AttentionShape& shape = net.attend.shape;
  AttentionNet sorted = net;
  sort_stacks(sorted.in);
  const NetLaunch l = plan_net(gpu, sorted, mixers_of(net), int64_t{sizeof(MixerMemory)}, true);
  CHECK(l.held == 0 || net.norm_x != nullptr, "a row that is normalised");
  launch(stream, dim3(static_cast<unsigned>(l.grid)), dim3(kFlowThreads),
         static_cast<size_t>(l.bytes), kernel_for(l.held), sorted, l.plan,
         MixerPlan{.heads = shape.query_heads / shape.kv_heads,
                   .stretch_step = mixers_of(net) / shape.kv_heads});
}

}  // namespace pewter::cuda
