// Decode attention over stretches of positions.
//
// Split of work: an item is one stretch of one KV head of one sequence and up to 16·kGroups query
// rows (a query row is a head of the KV head's group in one of the step's rows). There are as many
// blocks of threads as the GPU holds at once, two on a multiprocessor of the H200, and each has its
// items of the step, long ones first; the next item's tiles are requested before it is done with
// one. Its eight warps share each tile of 32 keys and values. 8 / kGroups of them serve 16 query
// rows: they share out the tile's positions, or with one group the dimensions as well, exchange the
// scores, and then each owns 32·kGroups of the head's dimensions. merge.cu adds the stretches.
//
// The order of a row's sums depends on positions alone: a score is the sum of two halves of the
// dimensions, values are added in steps of 16 positions, stretches as merge.cu says.
//
// Bytes: keys and values of the sequence once per 16·kGroups query rows, partial results of a
// stretch (query rows × 260 × 4) written and read once. Precision: bf16 q, k, v and probabilities,
// f32 scores and sums.
//
// Limits: memory, where every multiprocessor has work for long: one more position costs what it
// takes at 3.85 TB/s on an H200, 90 % of a copy. Before that come 12 µs of beginning and end;
// behind 131,072 positions one row takes 82 µs, and 6 in the merge
// (bench/results/h200/attention.csv). For short contexts launch and latency: 1 µs for a block's
// second tile, 2 for each one it has to wait for. From four rows of 16 heads on shared memory and
// the barriers between a tile's steps.

#include <algorithm>

#include "backend/cuda/attention/tile.cuh"

namespace pewter::cuda {
namespace {

constexpr int kBarrierBytes = kPitch * 2;  // from one barrier to the next

// How the warps share out work on kGroups times 16 query rows, and shared memory.
template <int kGroups>
struct Shares {
  static constexpr int kSharers = kStretchWarps / kGroups;  // of 16 query rows
  static constexpr int kDimensions = kHead / kSharers;
  // Eight positions are the least a warp scores; then sharers take half of the dimensions each.
  static constexpr int kHalves = kSharers > kTile / 8 ? 1 : 2;         // a warp computes
  static constexpr int kColumns = kTile / 8 / kSharers + kHalves % 2;  // of eight positions
  // A half of 16 rows fits into a warp's registers.
  static constexpr bool kHeld = kHalves == 1;
  static constexpr int kKeyStages = 2, kValueStages = kHeld ? 3 : 2;
  // Without room for them elsewhere, scores are exchanged where the tile's keys were.
  static constexpr bool kInPlace = kGroups == 4;
  static constexpr int kExchanged = kGroups * (3 - kHalves) * 16;  // rows

  static constexpr size_t kRows = (kKeyStages + kValueStages) * sizeof(Tile);  // where they begin
  static constexpr size_t kExchange = kRows + (kHeld ? 0 : kGroups * 16 * kPitch * 2);
  static constexpr size_t kBytes = kExchange + (kInPlace ? 0 : 2 * kExchanged * sizeof(Exchange));
};

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

// The index of this block's item number `wave`. Every second wave goes backwards, so that who had a
// long one gets a short one.
__device__ inline int index_of(int wave) {
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  return wave * blocks + (wave % 2 == 0 ? block : blocks - 1 - block);
}

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
  int queries, wave = 0, sequence = 0, kv_head = 0, position = 0, end = 0;
  bool any = false;
  int32_t page = 0;

  __device__ void open(int next) {
    wave = next;
    Item item;
    any = find_item(a, queries, index_of(wave), item);
    if (!any) return;
    sequence = item.sequence;
    kv_head = item.kv_head;
    position = begin_of(item);
    end = end_of(item);
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
      copy_async(to + i * kPitch * 2, from + i * kHead * 2, position + row + i < end);
    arrive_with_copies(barrier);
  }
};

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

template <int kGroups>
__global__ void __launch_bounds__(kStretchThreads, register_blocks(2))
    stretch_kernel(const __grid_constant__ AttendArgs a) {
  using Share = Shares<kGroups>;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  constexpr int kKeyStages = Share::kKeyStages, kValueStages = Share::kValueStages;
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
  constexpr int kScorers = kTile / 8 / Share::kColumns;
  const int first_scored = member % kScorers * 8 * Share::kColumns, scored_half = member / kScorers;
  start_next();
  if (threadIdx.x == 0)
#pragma unroll
    for (int i = 0; i < kKeyStages + kValueStages; ++i)
      init_barrier<kStretchThreads>(keys_here + i * kBarrierBytes);
  __syncthreads();
  wait_for_inputs();

  Requests requests{.a = a, .queries = 16 * kGroups};
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
  int tile = 0;  // of all items
  Item item;
#pragma unroll 1
  for (int wave = 0; find_item(a, 16 * kGroups, index_of(wave), item); ++wave) {
    Fragment held[Share::kHeld ? kHead / 32 : 1];
    if constexpr (Share::kHeld)
      hold_queries(held, a, item, scored_half);
    else
      load_queries<kGroups>(a, item, q_rows);
    const bool active = item.first_query + 16 * group < item.rows * heads;
    const int end = end_of(item);
    int record[2];
    find_records(a, item, item.first_query + 16 * group, record);
    Softmax<kGroups> softmax([&](int query_row) {
      const int row = (item.first_query + query_row) / heads;
      return row < item.rows ? item.context + row + 1 : 0;
    });
    ValueSums<Share::kDimensions> sums;
    Exchange* exchange = room;
    if constexpr (!Share::kHeld) __syncthreads();
#pragma unroll 1
    for (int begin = begin_of(item); begin < end; begin += kTile, ++tile) {
      const int key_stage = tile % kKeyStages, value_stage = tile % kValueStages;
      exchange = Share::kInPlace ? reinterpret_cast<Exchange*>(keys[key_stage])
                                 : room + key_stage * Share::kExchanged;
      wait_barrier(keys_here + key_stage * kBarrierBytes, tile / kKeyStages % 2);
      float scores[Share::kHalves][Share::kColumns][4];
      if (active)
        score(
            scores,
            [&](Fragment& q, int half, int i) {
              if constexpr (Share::kHeld)
                for (int j = 0; j < 4; ++j) q[j] = held[i][j];
              else
                load_matrices(q, q_rows + (16 * group + lane % 16) * kPitch + lane / 16 * 8 +
                                     half * (kHead / 2) + 16 * i);
            },
            keys[key_stage][first_scored] + scored_half * (kHead / 2));
      if constexpr (Share::kInPlace) {
        __syncthreads();  // nobody needs these keys, or the weights and values before
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
          *reinterpret_cast<float2*>(to[g + 8 * half].scores + first_scored + 8 * n + 2 * t) = two;
        }
      }
      __syncthreads();  // all scores are there; nobody needs the keys, or the values before
      if constexpr (!Share::kInPlace && kValueStages == 2) {
        request_values(tile + 1);
        request_keys(tile + 2);
      }
      if constexpr (kValueStages > 2) {
        request_keys(tile + 2);
        request_values(tile + 2);
      }
      softmax.template weigh<3 - Share::kHalves>(exchange, begin, scale);
      __syncthreads();
      wait_barrier(values_here + value_stage * kBarrierBytes, tile / kValueStages % 2);
      if (active) sums.add(exchange + group * 16, values[value_stage][0], first_dimension);
    }
    softmax.finish(exchange);
    __syncthreads();
    if (active) sums.store(a.partials, exchange + group * 16, record, first_dimension);
  }
}

template <int kGroups>
int resident_blocks() {  // on a multiprocessor
  int blocks = 0;
  set_kernel_limits(reinterpret_cast<const void*>(stretch_kernel<kGroups>),
                    Shares<kGroups>::kBytes);
  CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &blocks, stretch_kernel<kGroups>, kStretchThreads, Shares<kGroups>::kBytes));
  return blocks;
}

template <int kGroups>
void run(cudaStream_t stream, const Gpu& gpu, const AttendArgs& args, int tiles) {
  static const int resident = resident_blocks<kGroups>();
  // A block that steps over whole stretches keeps its KV head and query rows.
  const int tasks = args.shape.kv_heads * ((tiles + kGroups - 1) / kGroups);
  const int most = static_cast<int>(args.batch.page_table_stride) * kPagePositions;
  const int64_t items = int64_t{stretches_of(most)} * tasks * args.batch.sequences;
  const int64_t room = std::max(resident * gpu.multiprocessors / tasks, 1) * tasks;
  launch(stream, dim3(static_cast<unsigned>(std::min(items, room))), dim3(kStretchThreads),
         Shares<kGroups>::kBytes, stretch_kernel<kGroups>, args);
}

}  // namespace

bool can_split(const AttentionShape& shape) { return shape.head_dim == kHead; }

int64_t split_partial_floats(const AttentionShape& shape, int64_t positions, int64_t sequences,
                             int64_t rows) {
  // Sequences share the positions. Stretches grow, so most are there when all have as many.
  const int64_t each = (positions + sequences - 1) / sequences;
  const int64_t stretches = sequences * (stretches_of(static_cast<int>(each)) + 1);
  return stretches * rows * shape.query_heads * kPartial;
}

void attend_split(cudaStream_t stream, const Gpu& gpu, const AttendArgs& args) {
  const int heads = args.shape.query_heads / args.shape.kv_heads;
  const int tiles = (args.most_rows * heads + 15) / 16;
  if (tiles == 1)
    run<1>(stream, gpu, args, tiles);
  else if (tiles <= 4)  // twice, for up to four: faster behind fewer than 30,000 positions
    run<2>(stream, gpu, args, tiles);
  else  // more query rows would need more shared memory than every GPU has
    run<4>(stream, gpu, args, tiles);
  merge(stream, args);
}

}  // namespace pewter::cuda
