// Attention of one row or several over stretches of positions, by blocks of threads that take items
// in turn: the parts of split.cu and net.cu.
#pragma once

#include <algorithm>

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/attention/partials.cuh"
#include "backend/cuda/common/bulk.cuh"
#include "backend/cuda/common/matrix.cuh"
#include "backend/device.h"

namespace pewter::cuda {

constexpr int kPagePositions = static_cast<int>(kPageTokens);
constexpr int kTile = 32;                  // positions
constexpr int kPitch = kHead + 8;          // of a row in shared memory: 16 bytes apart in banks
constexpr int kBarrierBytes = kPitch * 2;  // from one barrier to the next
constexpr int kStretchWarps = 8, kStretchThreads = kStretchWarps * kWarp;

using Tile = __nv_bfloat16[kTile][kPitch];

// Of a query row: 32 scores, then as many weights in bf16, and what the sums so far shrink by; in
// the end the largest score and the total.
struct Exchange {
  float scores[kTile], shrink, unused, largest, total;
};

// How the warps share out work on kGroups times 16 query rows, and shared memory. kHolds: query
// rows are held in registers, if a warp's fit there.
template <int kQueryGroups, bool kHolds = true>
struct StretchShares {
  static constexpr int kGroups = kQueryGroups;
  static constexpr int kSharers = kStretchWarps / kGroups;  // of 16 query rows
  static constexpr int kDimensions = kHead / kSharers;
  // Eight positions are the least a warp scores; then sharers take half of the dimensions each.
  static constexpr int kHalves = kSharers > kTile / 8 ? 1 : 2;         // a warp computes
  static constexpr int kColumns = kTile / 8 / kSharers + kHalves % 2;  // of eight positions
  // A half of 16 rows fits into a warp's registers.
  static constexpr bool kHeld = kHolds && kHalves == 1;
  static constexpr int kKeyStages = 2, kValueStages = kHeld ? 3 : 2;
  // Without room for them elsewhere, scores are exchanged where the tile's keys were.
  static constexpr bool kInPlace = kGroups == 4;
  static constexpr int kExchanged = kGroups * (3 - kHalves) * 16;  // rows

  static constexpr size_t kRows = (kKeyStages + kValueStages) * sizeof(Tile);  // where they begin
  static constexpr size_t kExchange = kRows + (kHeld ? 0 : kGroups * 16 * kPitch * 2);
  static constexpr size_t kBytes = kExchange + (kInPlace ? 0 : 2 * kExchanged * sizeof(Exchange));
};

// 16 bytes, or zeros. They are the first to leave the L2 cache (createpolicy's evict_first).
__device__ inline void copy_async(uint32_t to, const void* from, bool wanted) {
  constexpr uint64_t kOnce = 0x12F0000000000000;
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to),
               "l"(from), "r"(wanted ? 16 : 0), "l"(kOnce)
               : "memory");
}

__device__ inline void load_matrices(uint32_t (&r)[4], const void* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(at)));
}
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], const void* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(at)));
}
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// What a block of threads does at a time.
struct Item {
  int sequence, rows, row_begin, context;
  int kv_head, first_query, stretch;
  int first_partial;  // of the sequence: stretches × rows of those before it
};

__device__ inline int begin_of(const Item& item) { return stretch_begin(item.stretch); }
__device__ inline int end_of(const Item& item) {
  return min(stretch_begin(item.stretch + 1), item.context + item.rows);
}

// The blocks of threads of a kernel that attend to items in turn.
struct StretchBlocks {
  int block, blocks;
  bool turns;  // every second wave goes backwards, so that who had a long one gets a short one

  // The index of this block's item number `wave`.
  __device__ int index_of(int wave) const {
    return wave * blocks + (turns && wave % 2 == 1 ? blocks - 1 - block : block);
  }
};

// Item number `at` of a sequence of `tasks` a stretch.
__device__ inline void place(Item& item, int at, int stretches, int tasks, int kv_heads,
                             int queries) {
  const auto task = static_cast<unsigned>(at) % static_cast<unsigned>(tasks);
  item.stretch = stretches - 1 - at / tasks;  // the last are the longest
  item.kv_head = static_cast<int>(task) % kv_heads;
  item.first_query = static_cast<int>(task) / kv_heads * queries;
}

// Item `index` of the step; false if there are not as many. All lanes of a warp ask at once.
__device__ inline bool find_item(const AttendArgs& a, int queries, int index, Item& item) {
  const int lane = threadIdx.x % kWarp, heads = a.shape.query_heads / a.shape.kv_heads;
  const auto from = [](int value, int source) { return __shfl_sync(kAllLanes, value, source); };
  const int kv_heads = a.shape.kv_heads;
  if (a.batch.sequences == 1) {
    item.sequence = item.row_begin = item.first_partial = 0;
    item.rows = a.batch.row_begin[1];
    item.context = a.batch.context_length[0];
    const int tasks = (item.rows * heads + queries - 1) / queries * kv_heads;
    const int stretches = stretches_of(item.context + item.rows);
    if (index >= stretches * tasks) return false;
    place(item, index, stretches, tasks, kv_heads, queries);
    return true;
  }
  int items_before = 0, partials_before = 0;
#pragma unroll 1
  for (int base = 0; base < a.batch.sequences; base += kWarp) {
    int rows = 0, row_begin = 0, context = 0;
    if (base + lane < a.batch.sequences) {
      row_begin = a.batch.row_begin[base + lane];
      rows = a.batch.row_begin[base + lane + 1] - row_begin;
      context = a.batch.context_length[base + lane];
    }
    const int stretches = rows > 0 ? stretches_of(context + rows) : 0;
    const int tasks = (rows * heads + queries - 1) / queries * kv_heads;  // of a stretch
    int items = stretches * tasks, partials = stretches * rows;  // with those of lanes before
#pragma unroll
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const int more_items = __shfl_up_sync(kAllLanes, items, offset);
      const int more_partials = __shfl_up_sync(kAllLanes, partials, offset);
      if (lane >= offset) items += more_items, partials += more_partials;
    }
    const unsigned beyond = __ballot_sync(kAllLanes, index < items_before + items);
    if (beyond != 0) {
      const int source = __ffs(static_cast<int>(beyond)) - 1;
      const int per_stretch = from(tasks, source), count = from(stretches, source);
      const int at = index - (items_before + from(items, source) - per_stretch * count);
      item.sequence = base + source;
      item.rows = from(rows, source);
      item.row_begin = from(row_begin, source);
      item.context = from(context, source);
      item.first_partial = partials_before + from(partials, source) - count * item.rows;
      place(item, at, count, per_stretch, kv_heads, queries);
      return true;
    }
    items_before += from(items, kWarp - 1);
    partials_before += from(partials, kWarp - 1);
  }
  return false;
}

// The tiles of this block's items, one after another.
struct Requests {
  const AttendArgs& a;
  StretchBlocks blocks;
  bool all_cached;  // or the last position's keys and values are not, and not copied
  int queries, wave = 0, sequence = 0, kv_head = 0, position = 0, end = 0, missing = -1;
  bool any = false;
  int32_t page = 0;

  __device__ void open(int next) {
    wave = next;
    Item item;
    any = find_item(a, queries, blocks.index_of(wave), item);
    if (!any) return;
    sequence = item.sequence;
    kv_head = item.kv_head;
    position = begin_of(item);
    end = end_of(item);
    if (!all_cached) missing = item.context;
    find_page();
  }
  __device__ void find_page() {
    page = a.batch.page_table[sequence * a.batch.page_table_stride + position / kPagePositions];
  }

  // The tile's keys; then its values, which are the end of the tile. All threads arrive at the
  // barrier when they are here.
  __device__ void keys(uint32_t to, uint32_t barrier) const {
    if (any) copy(to, a.cache.keys, barrier);
  }
  __device__ void values(uint32_t to, uint32_t barrier) {
    if (!any) return;
    copy(to, a.cache.values, barrier);
    position += kTile;
    if (position >= end)
      open(wave + 1);
    else if (position % kPagePositions == 0)
      find_page();  // arrives while the tile in hand is worked on
  }
  __device__ void copy(uint32_t to, const std::byte* plane, uint32_t barrier) const {
    const int row = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const std::byte* const from =
        plane + page * a.cache.page_bytes +
        (kv_head * kPagePositions + position % kPagePositions + row) * kHead * 2 + lane * 16;
    to += row * kPitch * 2 + lane * 16;
#pragma unroll
    for (int i = 0; i < kTile; i += kStretchWarps)
      // Past the end lies what another sequence left there; a weight of 0 does not silence a NaN.
      if (position + row + i != missing)
        copy_async(to + i * kPitch * 2, from + i * kHead * 2, position + row + i < end);
    arrive_with_copies(barrier);
  }
};

// Registers of 16 query rows and 16 dimensions for the matrix instructions.
using Fragment = uint32_t[4];

// A half of the dimensions of the item's query rows.
__device__ inline void hold_queries(Fragment (&q)[kHead / 32], const AttendArgs& a,
                                    const Item& item, int half) {
  const int lane = threadIdx.x % kWarp, heads = a.shape.query_heads / a.shape.kv_heads;
#pragma unroll
  for (int high = 0; high < 2; ++high) {
    const int query = item.first_query + lane / 4 + 8 * high, row = query / heads;
    const bool inside = row < item.rows;
    const auto* const from = reinterpret_cast<const uint32_t*>(
        a.q + (item.row_begin + (inside ? row : 0)) * a.q_stride +
        (item.kv_head * heads + query % heads) * kHead + half * (kHead / 2));
#pragma unroll
    for (int i = 0; i < kHead / 32; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) q[i][2 * j + high] = inside ? from[8 * i + 4 * j + lane % 4] : 0;
  }
}

// Sums over a half of the dimensions, or both, of 16 query rows and the positions of the tile from
// `keys` on.
template <int kHalves, int kColumns, typename Query>
__device__ inline void score(float (&scores)[kHalves][kColumns][4], const Query& query,
                             const __nv_bfloat16* keys) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int i = 0; i < kHalves * kColumns * 4; ++i)
    scores[i / 4 / kColumns][i / 4 % kColumns][i % 4] = 0;
  keys += lane % 8 * kPitch + lane / 8 * 8;
#pragma unroll
  for (int i = 0; i < kHead / 64; ++i)
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      Fragment q[2], k;
      query(q[0], half, 2 * i);
      query(q[1], half, 2 * i + 1);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        load_matrices(k, keys + 8 * n * kPitch + half * (kHead / 2) + 32 * i);
        multiply_add(scores[half][n], q[0], k[0], k[1]);
        multiply_add(scores[half][n], q[1], k[2], k[3]);
      }
    }
}

// Online softmax over the tiles of a stretch: 2·kGroups query rows a warp, a half of its lanes each
// with two positions a lane.
template <int kGroups>
struct Softmax {
  int limit[kGroups];  // positions a row sees: below this
  float largest[kGroups], total[kGroups];

  static __device__ int row(int i) {
    return (threadIdx.x / kWarp * kGroups + i) * 2 + threadIdx.x % kWarp / 16;
  }
  __device__ void begin(const Item& item, int heads) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int query = (item.first_query + row(i)) / heads;
      limit[i] = query < item.rows ? item.context + query + 1 : 0;
      largest[i] = -INFINITY;
      total[i] = 0;
    }
  }
  // Scores, or two halves of them, become weights.
  template <int kParts>
  __device__ void weigh(Exchange* exchange, int begin, float scale) {
    const int column = threadIdx.x % 16 * 2;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      Exchange& own = exchange[row(i)];
      float2 two = *reinterpret_cast<const float2*>(own.scores + column);
      if constexpr (kParts == 2) {
        const float2 more = *reinterpret_cast<const float2*>(exchange[16 + row(i)].scores + column);
        two.x += more.x;
        two.y += more.y;
      }
      two.x = begin + column < limit[i] ? two.x * scale : -INFINITY;
      two.y = begin + column + 1 < limit[i] ? two.y * scale : -INFINITY;
      float most = fmaxf(largest[i], fmaxf(two.x, two.y));
#pragma unroll
      for (int offset = 8; offset > 0; offset /= 2)
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, offset));
      const float safe = most == -INFINITY ? 0.0f : most;  // nothing visible yet
      const float shrink = power_of_two(largest[i] - safe);
      largest[i] = most;
      two.x = power_of_two(two.x - safe);
      two.y = power_of_two(two.y - safe);
      total[i] = fmaf(total[i], shrink, two.x + two.y);
      __syncwarp();  // all lanes have read the scores that lie there
      reinterpret_cast<uint32_t*>(own.scores)[column / 2] = pack_bf16(two.x, two.y);
      if (column == 0) own.shrink = shrink;
    }
  }
  __device__ void finish(Exchange* exchange) const {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      float sum = total[i];
#pragma unroll
      for (int offset = 8; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAllLanes, sum, offset);
      if (threadIdx.x % 16 == 0) {
        exchange[row(i)].largest = largest[i];
        exchange[row(i)].total = sum;
      }
    }
  }
};

// Values of a warp's dimensions times the weights of 16 query rows. With lane = 4·g + t a lane has
// query rows g and g + 8.
template <int kDimensions>
struct ValueSums {
  float sums[kDimensions / 8][4] = {};

  __device__ void add(const Exchange* exchange, const __nv_bfloat16* values, int first_dimension) {
    const int lane = threadIdx.x % kWarp, g = lane / 4;
    const float low = exchange[g].shrink, high = exchange[g + 8].shrink;
    if (__any_sync(kAllLanes, low != 1.0f || high != 1.0f)) {
#pragma unroll
      for (int n = 0; n < kDimensions / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[n][i] *= i < 2 ? low : high;
    }
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      uint32_t p[4];
      load_matrices(p, exchange[lane % 16].scores + 8 * step + lane / 16 * 4);
#pragma unroll
      for (int n = 0; n < kDimensions / 8; n += 2) {
        uint32_t v[4];
        load_matrices_transposed(
            v, values + (16 * step + lane % 16) * kPitch + first_dimension + 8 * n + lane / 16 * 8);
        multiply_add(sums[n], p, v[0], v[1]);
        multiply_add(sums[n + 1], p, v[2], v[3]);
      }
    }
  }
  __device__ void store(float* partials, const Exchange* exchange, const int (&record)[2],
                        int first_dimension) const {
    const int g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (record[half] < 0) continue;
      float* const to = partials + static_cast<int64_t>(record[half]) * kPartial;
#pragma unroll
      for (int n = 0; n < kDimensions / 8; ++n)
        *reinterpret_cast<float2*>(to + first_dimension + 8 * n + 2 * t) =
            make_float2(sums[n][2 * half], sums[n][2 * half + 1]);
      if (first_dimension == 0 && t == 0) {
        const Exchange& own = exchange[g + 8 * half];
        *reinterpret_cast<float2*>(to + kHead) = make_float2(own.largest, own.total);
      }
    }
  }
};

template <int kGroups>
__device__ inline void load_queries(const AttendArgs& a, const Item& item, __nv_bfloat16* q_rows) {
  const int heads = a.shape.query_heads / a.shape.kv_heads;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < 16 * kGroups * kHead / 8; i += kStretchThreads) {
    const int query = item.first_query + i / (kHead / 8), column = i % (kHead / 8) * 8;
    const int row = query / heads, head = item.kv_head * heads + query % heads;
    uint4 eight = make_uint4(0, 0, 0, 0);
    if (row < item.rows)
      eight = *reinterpret_cast<const uint4*>(a.q + (item.row_begin + row) * a.q_stride +
                                              head * kHead + column);
    *reinterpret_cast<uint4*>(q_rows + i / (kHead / 8) * kPitch + column) = eight;
  }
}

// Records of a.partials that query rows g and g + 8 of 16 fill; -1 of none.
__device__ inline void find_records(const AttendArgs& a, const Item& item, int first_query,
                                    int (&record)[2]) {
  const int heads = a.shape.query_heads / a.shape.kv_heads;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = first_query + threadIdx.x % kWarp / 4 + 8 * half, row = query / heads;
    record[half] = row < item.rows ? (item.first_partial + item.stretch * item.rows + row) *
                                             a.shape.query_heads +
                                         item.kv_head * heads + query % heads
                                   : -1;
  }
}

// The items of a block of threads. rows says where the step's rows are: wait() lets this block
// request keys and values of the cache, prepare(query rows, scratch, is_real) brings the queries,
// where !kAllCached into shared memory, and place(key, value) the last position's, which the cache
// has only later. kRehearses: all of it is done for a tile of whatever lies there before, so that
// the instructions are here when the queries are. sync(): a barrier of the threads.
template <typename Share, typename Rows>
__device__ inline void attend_items(const AttendArgs& a, const StretchBlocks& blocks,
                                    unsigned char* shared_memory, const Rows& rows) {
  constexpr int kGroups = Share::kGroups, kKeyStages = Share::kKeyStages,
                kValueStages = Share::kValueStages;
  auto* const keys = reinterpret_cast<Tile*>(shared_memory);
  Tile* const values = keys + kKeyStages;
  auto* const q_rows = reinterpret_cast<__nv_bfloat16*>(shared_memory + Share::kRows);
  auto* const room = reinterpret_cast<Exchange*>(shared_memory + Share::kExchange);
  // Barriers of the stages, in the gaps behind rows of values.
  const uint32_t keys_here = shared_address(values[0][0] + kHead);
  const uint32_t values_here = keys_here + kKeyStages * kBarrierBytes;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int group = warp / Share::kSharers, member = warp % Share::kSharers;
  const int first_dimension = Share::kDimensions * member;
  constexpr bool kHalvesApart = Share::kHalves == 1;  // each sharer has one
  constexpr int kScorers = kTile / 8 / Share::kColumns;
  const int first_scored = member % kScorers * 8 * Share::kColumns, scored_half = member / kScorers;
  if (threadIdx.x == 0)
#pragma unroll
    for (int i = 0; i < kKeyStages + kValueStages; ++i)
      init_barrier<kStretchThreads>(keys_here + i * kBarrierBytes);
  rows.sync();
  rows.wait();

  Requests requests{
      .a = a, .blocks = blocks, .all_cached = Rows::kAllCached, .queries = 16 * kGroups};
  const auto request_keys = [&](int tile) {
    const int stage = tile % kKeyStages;
    requests.keys(shared_address(keys[stage]), keys_here + stage * kBarrierBytes);
  };
  const auto request_values = [&](int tile) {
    const int stage = tile % kValueStages;
    requests.values(shared_address(values[stage]), values_here + stage * kBarrierBytes);
  };
  requests.open(0);
  request_keys(0);
  request_values(0);
  if constexpr (!Share::kInPlace) request_keys(1);
  if constexpr (kValueStages > 2) request_values(1);

  const int heads = a.shape.query_heads / a.shape.kv_heads;
  const float scale = 1.4426950408889634f / sqrtf(static_cast<float>(kHead));
#pragma unroll 1
  for (int turn = Rows::kRehearses ? 0 : 1; turn < 2; ++turn) {
    const bool is_real = !Rows::kRehearses || turn == 1;
    rows.prepare(q_rows, room, is_real);
    int tile = 0;  // of all items
    Item item;
#pragma unroll 1
    for (int wave = 0;
         (is_real || wave == 0) && find_item(a, 16 * kGroups, blocks.index_of(wave), item);
         ++wave) {
      Fragment held[Share::kHeld ? kHead / 32 : 1];
      if constexpr (Share::kHeld)
        hold_queries(held, a, item, scored_half);
      else if constexpr (Rows::kAllCached)
        load_queries<kGroups>(a, item, q_rows);
      const bool active = item.first_query + 16 * group < item.rows * heads;
      const int end = end_of(item);
      int record[2];
      find_records(a, item, item.first_query + 16 * group, record);
      Softmax<kGroups> softmax;
      softmax.begin(item, heads);
      ValueSums<Share::kDimensions> sums;
      Exchange* exchange = room;
      if constexpr (!Share::kHeld && Rows::kAllCached) rows.sync();
#pragma unroll 1
      for (int begin = begin_of(item); begin < end; begin += kTile, ++tile) {
        const int key_stage = tile % kKeyStages, value_stage = tile % kValueStages;
        exchange = Share::kInPlace ? reinterpret_cast<Exchange*>(keys[key_stage])
                                   : room + key_stage * Share::kExchanged;
        if (is_real) wait_barrier(keys_here + key_stage * kBarrierBytes, tile / kKeyStages % 2);
        if constexpr (!Rows::kAllCached)
          if (const int row = item.context - begin; is_real && row >= 0 && row < kTile) {
            wait_barrier(values_here + value_stage * kBarrierBytes, tile / kValueStages % 2);
            rows.place(keys[key_stage][row], values[value_stage][row]);
            rows.sync();
          }
        float scores[Share::kHalves][Share::kColumns][4];
        if (active)
          score(
              scores,
              [&](Fragment& q, int half, int i) {
                if constexpr (Share::kHeld)
                  for (int j = 0; j < 4; ++j) q[j] = held[i][j];
                else
                  load_matrices(q, q_rows + (16 * group + lane % 16) * kPitch + lane / 16 * 8 +
                                       (half + (kHalvesApart ? scored_half : 0)) * (kHead / 2) +
                                       16 * i);
              },
              keys[key_stage][first_scored] + scored_half * (kHead / 2));
        if constexpr (Share::kInPlace) {
          rows.sync();  // nobody needs these keys, or the weights and values before
          request_keys(tile + 1);
          request_values(tile + 1);
        }
        if (active) {
          Exchange* const to = exchange + (Share::kHalves == 1 ? scored_half : group) * 16;
#pragma unroll
          for (int i = 0; i < 2 * Share::kColumns; ++i) {
            const int n = i / 2, half = i % 2;
            float2 two = make_float2(scores[0][n][2 * half], scores[0][n][2 * half + 1]);
            if constexpr (Share::kHalves == 2) {
              two.x += scores[1][n][2 * half];
              two.y += scores[1][n][2 * half + 1];
            }
            *reinterpret_cast<float2*>(to[g + 8 * half].scores + first_scored + 8 * n + 2 * t) =
                two;
          }
        }
        rows.sync();  // all scores are there; nobody needs the keys, or the values before
        if (!Share::kInPlace && kValueStages == 2 && is_real) {
          request_values(tile + 1);
          request_keys(tile + 2);
        }
        if constexpr (kValueStages > 2) {
          request_keys(tile + 2);
          request_values(tile + 2);
        }
        softmax.template weigh<3 - Share::kHalves>(exchange, begin, scale);
        rows.sync();
        if (is_real)
          wait_barrier(values_here + value_stage * kBarrierBytes, tile / kValueStages % 2);
        if (active) sums.add(exchange + group * 16, values[value_stage][0], first_dimension);
        if (!is_real) break;
      }
      softmax.finish(exchange);
      rows.sync();
      if (active) sums.store(a.partials, exchange + group * 16, record, first_dimension);
    }
  }
}

}  // namespace pewter::cuda
