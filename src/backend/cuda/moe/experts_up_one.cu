// Gate and up matrices of experts of int4 or fp8, SiLU and product, for one row whose logits arrive
// by words (RouteWords). experts_up.cu is the plain twin; experts_up_few.cu serves what this does
// not.
//
// Split of work: as in experts_up_few.cu: eight warps multiply, the ninth routes and requests. A
// warp has the same few blocks of k of each tile, so its lanes keep their parts of the row
// (linear/held_row.cuh), which one copy brings: of many loads some would come behind weights. Where
// it has two blocks of a tile of int4, a stage has both tiles of a unit. Bytes: the matrices of the
// experts met, from memory once. Precision and order of sums: the twin's. Limits: the way from the
// logits to the first weights, then latency and instructions that are fetched once: the code is
// short before it is anything else. With the router and the down products 65 % of copy bandwidth
// for the 122B on an H200.

#include <algorithm>

#include "backend/cuda/linear/flow.cuh"
#include "backend/cuda/linear/held_row.cuh"
#include "backend/cuda/linear/parts.cuh"
#include "backend/cuda/moe/experts_up_few.h"
#include "backend/cuda/moe/routing.cuh"

namespace pewter::cuda {
namespace {

// A stage has up to four blocks for each warp, of int4 whole tiles, of fp8 one block.
constexpr int kLeastBlocks = 2, kMostBlocks = 4;  // of a tile: a warp's
constexpr int stage_tiles(int blocks) { return kMostBlocks / blocks; }

// Sums of a unit: [2 halves of the slices][gate, up][16 outputs][4 slices], so that a lane reads
// its output's by 16 bytes.
constexpr int kHalfSums = 2 * 16 * 4, kUnitSums = 2 * kHalfSums;
constexpr int kUnits = 2;  // in turn

// Stages have no tasks: units come in order.
struct NoTask {};

struct Role {
  int pieces;       // of a tile: stages, where a stage has no more than one
  int piece_bytes;  // of a tile, in a stage
  int tiles;        // in a stage
  int stages;       // there is room for
  Shares units;
  __host__ __device__ int stage_bytes() const { return tiles * piece_bytes; }
};
struct Plan {
  Role shared, routed;
  int results, row;   // in shared memory: sums of units, the row; the stages lie before
  int shared_shares;  // blocks of threads of the shared expert, the first ones
};

// The units of a block of threads. Unit u is tile u % tiles of slot u / tiles.
struct Units {
  int slot = 0, tile, count;

  __device__ Units(const Shares& shares, int place, int tiles) {
    tile = shares.begin(place);
    count = shares.begin(place + 1) - tile;
    for (; tile >= tiles; tile -= tiles) ++slot;
  }
  // Of how many slots this has to know.
  __device__ int known_slots(int tiles) const {
    int known = count > 0 ? slot + 1 : 0;
    for (int left = tile + count; left > tiles; left -= tiles) ++known;
    return known;
  }
};

// Requests them, by one lane of a warp. What does not depend on the routing is done before that is
// known.
struct Requests {
  const TileStack (&w)[2];
  Flow<NoTask>& flow;
  Units units;
  int pieces, piece_bytes, stage_bytes;  // Role
  bool asks;                             // this lane
  uint32_t matrix_bytes;
  const uint8_t *from, *other;  // what is requested next; the same of the other part

  __device__ Requests(const TileStack (&stacks)[2], const Role& what, const Units& which,
                      Flow<NoTask>& to, bool is_asking)
      : w(stacks),
        flow(to),
        units(which),
        pieces(what.pieces),
        piece_bytes(what.piece_bytes),
        stage_bytes(what.stage_bytes()),
        asks(is_asking),
        matrix_bytes(static_cast<uint32_t>(w[0].matrix_bytes)) {
    const int64_t before = static_cast<int64_t>(units.tile) * (w[0].blocks * w[0].block_bytes);
    from = w[0].values + before;
    other = w[1].values + before;
    settle(units.slot, units.tile, units.count, pieces, piece_bytes, stage_bytes, matrix_bytes,
           from, other);
  }
  // Waits for an empty stage.
  __device__ void open() {
    if (asks) flow.send({}, stage_bytes);
  }
  // All stages, when the first is open and the choice known.
  __device__ void run(const Choice& choice) {
    const auto before_matrix = [&] {
      const int matrix = __shfl_sync(0xFFFFFFFFu, choice.expert, units.slot);
      return static_cast<uint64_t>(static_cast<uint32_t>(matrix)) * matrix_bytes;
    };
    const uint64_t before = before_matrix();
    from += before, other += before;
    int piece = 0, part = 0, at = 0;
#pragma unroll 1
    while (units.count > 0) {
      if (asks) flow.copy(at, from, piece_bytes);
      from += piece_bytes;
      if (++piece == pieces) {
        const uint8_t* const next = other;
        other = from, from = next;
        piece = 0;
        part ^= 1;
        if (part == 0) {
          if (--units.count == 0) break;
          if (++units.tile == w[0].tiles) {
            units.tile = 0, ++units.slot;
            const uint64_t to = before_matrix();
            from = w[0].values + to, other = w[1].values + to;
          }
        }
      }
      at += piece_bytes;
      if (at < stage_bytes) continue;
      at = 0;
      flow.next();
      open();
    }
  }
};

// kBlocks: of a tile, each warp's.
template <int kBlocks>
__global__ void __launch_bounds__(kFlowThreads, register_blocks(kResidentBlocks))
    one_kernel(const __grid_constant__ ExpertsUp a, const __grid_constant__ Plan plan) {
  constexpr int kTiles = stage_tiles(kBlocks), kBlockBytes = HeldRow<kBlocks>::kBlockBytes;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ FlowMemory<NoTask> flow_memory;
  __shared__ uint64_t row_here;
  const Lane me;
  const int index = static_cast<int>(blockIdx.x);
  const bool shared = index < plan.shared_shares, requests = me.warp == kFlowWarps;
  const TileStack(&w)[2] = shared ? a.shared : a.w;
  const Role& role = shared ? plan.shared : plan.routed;
  Flow<NoTask> flow(flow_memory, shared_memory, role.stage_bytes(), role.stages);
  settle(flow.full);
  Transfer transfer(&row_here);
  Units units(role.units, index - (shared ? 0 : plan.shared_shares), w[0].tiles);
  const bool coded = is_coded(w[0].format), is_half = w[0].scale_dtype == DType::kF16;
  // Of fp8 column g, and sums in it of lanes t = g / 2, is of the warp's block g / 2.
  const int column = me.g / 2 < kBlocks ? me.g / 2 : 0;
  const uint32_t row_at = shared_address(shared_memory + plan.row);
  uint32_t x_from = coded ? HeldRow<kBlocks>::words_of(row_at, me)
                          : row_at + 256 * (me.warp + kFlowWarps * column) + 16 * me.t;
  uint32_t scales_from = HeldRow<kBlocks>::scales_of(row_at, a.k, me);
  // Lanes t = 2 and 3 keep sums of outputs g and g + 8.
  const bool keeps = me.t >= 2;
  const uint32_t results = shared_address(shared_memory + plan.results);
  uint32_t sums_at =
      results + 4 * (me.warp / 4 * kHalfSums + (me.g + me.t % 2 * 8) * 4 + me.warp % 4);
  const int turns = coded ? 2 / kTiles : 2;
  // And lanes 0 … 15 of a warp write an output each: `inside` where it exists.
  int inside = me.lane < 16 ? w[0].n - units.tile * 16 - me.lane : -(1 << 30);
  __nv_bfloat16* out =
      (shared ? a.shared_out : a.out + units.slot * a.out_stride) + units.tile * 16 + me.lane;
  settle(x_from, scales_from, sums_at);  // behind the wait they would be in the way
  __syncthreads();

  // The warp that requests weights routes for itself, as far as it has to. For others to read a
  // warp routes that has nothing else to do: the shared expert's weights are on their way.
  const bool tells = index == 0 && me.warp == 0;
  Choice choice{};
  if (tells || requests) {
    Requests to_come(w, role, units, flow, requests && me.lane == 0 && units.count > 0);
    to_come.open();
    __syncwarp();
    if (tells || !shared)
      choice = hear_choice(a.route, tells ? a.route.top_k : units.known_slots(w[0].tiles));
    if (requests) {
      to_come.run(choice);
      return;
    }
  }

  wait_for_inputs();
  start_next();  // not before: the next kernel looks at the logits or the choice before it waits
  if (threadIdx.x == 0)
    transfer.request(shared_memory + plan.row, coded ? row_pitch(a.k) : 2 * a.k,
                     coded ? a.codes : reinterpret_cast<const uint8_t*>(a.x));
  if (tells) tell_choice(a.route, a.grouping, choice);
  transfer.wait();
  uint32_t x[16];
  HeldRow<kBlocks> row{.word = x};
  if (coded) {
    row.load(x_from, scales_from, me);
  } else {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const uint4 eight = load_shared16(x_from + 64 * r);
      x[4 * r] = eight.x, x[4 * r + 1] = eight.y, x[4 * r + 2] = eight.z, x[4 * r + 3] = eight.w;
    }
  }

#pragma unroll 1
  for (int unit = 0; unit < units.count; ++unit) {
    const uint32_t unit_sums = unit % kUnits * (4 * kUnitSums);
    uint32_t to = sums_at + unit_sums;
#pragma unroll 1
    for (int turn = 0; turn < turns; ++turn, to += 4 * 16 * 4) {
      float sum[kTiles] = {};
      if (coded) {
        flow.receive();
        row.multiply_by(is_half, flow.address() + me.warp * kBlockBytes, me, sum);
        flow.release();
      } else {
#pragma unroll 1
        for (int block = 0; block < kBlocks; ++block) {
          flow.receive();
          float product[4];
          const uint32_t at = flow.address() + me.warp * w[0].block_bytes;
          const uint4 eights[4] = {{x[0], x[1], x[2], x[3]},
                                   {x[4], x[5], x[6], x[7]},
                                   {x[8], x[9], x[10], x[11]},
                                   {x[12], x[13], x[14], x[15]}};
          multiply_fp8_block(at, eights, me, product);
          const float scale = fp8_scale(at);
          flow.release();
          const int source = 4 * me.g + block;
          const float first = __shfl_sync(0xFFFFFFFFu, product[0], source);
          const float second = __shfl_sync(0xFFFFFFFFu, product[2], source);
          sum[0] = fmaf(scale, me.t % 2 == 0 ? first : second, sum[0]);
        }
      }
      if (keeps) store_shared4(to, __float_as_uint(sum[0]));
      if (kTiles == 2 && keeps && coded)
        store_shared4(to + 4 * 16 * 4, __float_as_uint(sum[kTiles - 1]));
    }
    sync_flow();
    if (me.warp == unit % kFlowWarps) {
      // A lane's output of the gate tile or, lanes 16 …, of the up tile.
      const uint32_t at = results + unit_sums + 16 * me.lane;
      float total = 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 four = load_shared16(at + half * 4 * kHalfSums);
        total += __uint_as_float(four.x);
        total += __uint_as_float(four.y);
        total += __uint_as_float(four.z);
        total += __uint_as_float(four.w);
      }
      const float up = __shfl_down_sync(0xFFFFFFFFu, total, 16);
      if (inside > 0) *out = __float2bfloat16(silu(total) * up);
    }
    inside -= 16, out += 16;
    if (++units.tile == w[0].tiles) {
      units.tile = 0;
      inside += 16 * w[0].tiles, out += a.out_stride - 16 * w[0].tiles;
    }
  }
}

bool is_served(const TileStack& w) { return is_common(w) && w.format != WeightFormat::kBF16; }
Role role_of(const TileStack& w, int blocks, int64_t room) {
  const bool coded = is_coded(w.format);
  Role role{.pieces = coded ? 1 : blocks,
            .piece_bytes = (coded ? blocks : 1) * kFlowWarps * w.block_bytes,
            .tiles = coded ? stage_tiles(blocks) : 1};
  role.stages = static_cast<int>(std::min<int64_t>(room / role.stage_bytes(), kMostFlowStages));
  return role;
}

}  // namespace

bool up_one(cudaStream_t stream, const Gpu& gpu, const ExpertsUp& args) {
  const TileStack &w = args.w[0], &shared = args.shared[0];
  const int blocks = args.k / 128 / kFlowWarps;
  if (!is_served(w) || !is_served(shared) || args.k % (128 * kFlowWarps) != 0 ||
      blocks < kLeastBlocks || blocks > kMostBlocks || w.matrix_bytes > UINT32_MAX)
    return false;
  // All the shared memory there is, so that no more blocks of threads fit than shall.
  constexpr int64_t kOwn = sizeof(FlowMemory<NoTask>) + 64;
  constexpr int64_t kBytes = (kMaxShared - kOwn) / 128 * 128, kResults = 4 * kUnitSums * kUnits;
  const int row_bytes = static_cast<int>(round_up(row_pitch(args.k), 128));
  const int64_t room = kBytes - kResults - row_bytes;
  Plan plan{.shared = role_of(shared, blocks, room), .routed = role_of(w, blocks, room)};
  if (std::min(plan.shared.stages, plan.routed.stages) < kLeastStages) return false;
  plan.row = static_cast<int>(room);
  plan.results = plan.row + row_bytes;
  const UpGrid grid = grid_of(gpu, args, kBytes + kOwn);
  plan.shared_shares = grid.shared;
  plan.shared.units = Shares::of(shared.tiles, grid.shared);
  plan.routed.units = Shares::of(args.groups.top_k * w.tiles, grid.all - grid.shared);
  launch(stream, dim3(static_cast<unsigned>(grid.all)), dim3(kFlowThreads),
         static_cast<size_t>(kBytes),
         blocks == 2   ? one_kernel<2>
         : blocks == 3 ? one_kernel<3>
                       : one_kernel<4>,
         args, plan);
  return true;
}

}  // namespace pewter::cuda
