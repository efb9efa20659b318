// Down matrices of int4 experts and the sum over them, for one row whose choice arrives by words
// (RouteWords). experts_down.cu is the plain twin; experts_down_few.cu serves what this does not.
//
// Split of work: as in experts_down_few.cu: a block of threads takes a tile of 16 outputs; eight of
// its warps have a chosen expert each, four share the shared expert by blocks of k. All weights of
// a warp are on their way at once, and the row never is in shared memory: a lane brings the inputs
// of its own column of the matrix instructions, four groups at a time (linear/quad.cuh).
// A warp of the shared expert has nothing to do until the row is there: it runs a part of what
// follows on whatever lies there, so that its instructions are on the multiprocessor by then.
// Bytes: the matrices of the experts met, from memory once. Precision and order of sums: the
// twin's, where a slice of k is one block. Limits: the latency from the row to the sum. With the
// router and the up products 65 % of copy bandwidth for the 122B on an H200.

#include <algorithm>

#include "backend/cuda/linear/parts.cuh"
#include "backend/cuda/linear/quad.cuh"
#include "backend/cuda/moe/experts_down_few.h"
#include "backend/cuda/moe/routing.cuh"

namespace pewter::cuda {
namespace {

constexpr int kWarps = kRoutedWarps + kSharedWarps, kThreads = kWarps * kWarp;
constexpr int kBoundThreads = kBoundWarps * kWarp;
constexpr int kMostTurns = 2;  // of a warp: quads, or blocks of fp8
constexpr int kMostBlocks = kQuad * kMostTurns;

constexpr int kWeights = 16;  // the experts', the shared one's, room

// What warps of one kind have to do with, and where that lies in shared memory.
struct Role {
  int blocks;             // of k: a warp's share
  int turns, turn_bytes;  // of weights: of int4 a quad, of fp8 a block
  int weights;            // the first warp's
};
struct Plan {
  Role routed, shared;
  int results;  // weights [kWeights], experts' results [kFewChosen][16], the shared one's blocks'
};

// One output's sum over slots and parts, in order; what there is none of adds nothing. weight: the
// experts', then the shared one's; mine: the output's results of the experts, then of the parts.
__device__ inline float sum_of_experts(uint32_t weight, uint32_t mine, int top_k, int parts) {
  float by[kFewChosen], value[kFewChosen], part[kMostBlocks];
#pragma unroll
  for (int i = 0; i < kFewChosen; i += 4) {
    const uint4 four = load_shared16(weight + 4 * i);
    by[i] = __uint_as_float(four.x), by[i + 1] = __uint_as_float(four.y);
    by[i + 2] = __uint_as_float(four.z), by[i + 3] = __uint_as_float(four.w);
  }
#pragma unroll
  for (int i = 0; i < kFewChosen; ++i) value[i] = __uint_as_float(load_shared4(mine + 64 * i));
#pragma unroll
  for (int i = 0; i < kMostBlocks; ++i)
    part[i] = __uint_as_float(load_shared4(mine + 64 * (kFewChosen + i)));
  const float shared_weight = __uint_as_float(load_shared4(weight + 4 * kFewChosen));
  float sum = 0, shared_sum = 0;
#pragma unroll
  for (int i = 0; i < kFewChosen; ++i)
    if (i < top_k) sum = fmaf(by[i], value[i], sum);
#pragma unroll
  for (int i = 0; i < kMostBlocks; ++i)
    if (i < parts) shared_sum += part[i];
  return fmaf(shared_weight, shared_sum, sum);
}

// kTurns: of a warp at most.
template <int kTurns>
__global__ void __launch_bounds__(kBoundThreads, register_blocks(2))
    one_kernel(const __grid_constant__ ExpertsDown a, const __grid_constant__ Plan plan) {
  static_assert(kFewChosen == kRoutedWarps, "a warp for each expert of a row");
  static_assert(kMostBlocks <= kSharedWarps * kQuad, "no more than a quad of the shared expert's");
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ uint64_t barriers[kWarps * kTurns];
  start_next();
  const Lane me;
  const int tile = static_cast<int>(blockIdx.x), top_k = a.groups.top_k;

  // This warp's matrix, and its part of the tile and of a row.
  const bool shared = me.warp >= kRoutedWarps;
  const int index = shared ? me.warp - kRoutedWarps : me.warp;
  const TileStack& w = shared ? a.shared : a.w;
  const Role& role = shared ? plan.shared : plan.routed;
  const bool coded = is_coded(w.format), is_half = w.scale_dtype == DType::kF16;
  const int first_block = shared ? index * role.blocks : 0, first_input = first_block * 128;
  const int blocks = shared || index < top_k ? min(role.blocks, w.blocks - first_block) : 0;
  const int turns = coded ? (blocks + kQuad - 1) / kQuad : blocks;
  auto* const weight = reinterpret_cast<float*>(shared_memory + plan.results);
  float* const results = weight + kWeights;
  float* const shared_results = results + 16 * kFewChosen;
  Ring ring(shared_memory + role.weights + index * role.turns * role.turn_bytes,
            barriers + me.warp * kTurns, role.turn_bytes, role.turns, me.lane);

  // A warp waits for its own expert; a lane of the first one brings the shared expert's weight.
  int matrix = 0;
  if (!shared && blocks > 0) {
    const int slot = index == 0 && me.lane == 1 ? top_k : index;
    const uint64_t word = wait_for_word(a.route.words.chosen + slot);
    if (me.lane < 2)
      weight[slot == top_k ? kFewChosen : slot] = __uint_as_float(static_cast<uint32_t>(word));
    matrix = __shfl_sync(0xFFFFFFFFu, static_cast<int>(word >> 32), 0) - 1;
  }
  const uint8_t* from = w.values + matrix * w.matrix_bytes +
                        (tile * w.blocks + first_block) * static_cast<int64_t>(w.block_bytes);
#pragma unroll 1
  for (int left = blocks * w.block_bytes; left > 0; left -= role.turn_bytes) {
    ring.request(from, min(role.turn_bytes, left), me.lane);
    from += role.turn_bytes;
  }

  // What a lane brings for a turn: of int4 inputs of its column's group, of fp8 those of all
  // columns.
  const int turn_inputs = coded ? kQuad * 128 : 128;
  const int place = (coded ? me.g / 2 * 128 : 0) + 8 * me.t;
  const __nv_bfloat16* const x_from =
      (shared ? a.shared_x + first_input : a.x + index * a.x_stride) + place;
  const int inputs = blocks > 0 ? (shared ? a.shared_k : a.k) - first_input - place : 0;
  // The first warp adds up, and asks in time for what the sums join.
  const int output = tile * 16 + me.lane % 16;
  const bool adds = me.warp == 0 && me.lane < 16 && output < a.w.n;

  // Each warp that rehearses has another part. It brings no inputs, waits for nothing, reads the
  // place of the first quad of weights, whatever lies there, and writes nothing.
  enum Part : int { kCodes, kProducts, kBlock, kSum };
#pragma unroll 1
  for (bool rehearses = shared;; rehearses = false) {
    if (!rehearses) wait_for_inputs();
    const int end = rehearses ? 0 : inputs;
    uint4 x[kTurns][4];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn)
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        const int at = turn * turn_inputs + 32 * s;
        x[turn][s] = at < end ? *reinterpret_cast<const uint4*>(x_from + at) : uint4{};
      }
    float before = 0;
    if (!rehearses && adds && a.residual != nullptr) before = a.residual[output];

    const bool codes_now = rehearses ? index <= kProducts : coded;
    const int turns_now = rehearses ? (index < kBlock || (index == kBlock && !coded)) : turns;
    float2 total = {};
#pragma unroll 1
    for (int turn = 0; turn < turns_now; ++turn) {
      const uint32_t at =
          rehearses ? shared_address(shared_memory) : ring.base + turn * role.turn_bytes;
      const int left = blocks - turn * kQuad;
      float* const part = shared_results + 16 * (first_block + turn) + me.g;
      if (codes_now) {
        QuadCodes codes = {};
        if (!rehearses || index == kCodes) codes.code(x[0], me);
#pragma unroll
        for (auto& step : codes.word)  // complete here, so that both parts are what they seem
          settle(step[0], step[1]);
        if (rehearses && index == kCodes) break;
        if (!rehearses) wait_barrier(ring.barriers + 8 * turn, 0);
        const float2 own = multiply_quad(is_half, at, codes, me);
        if (!shared) {
#pragma unroll
          for (int i = 0; i < kQuad; ++i) {
            const float first = __shfl_sync(0xFFFFFFFFu, own.x, me.lane / 4 * 4 + i);
            const float second = __shfl_sync(0xFFFFFFFFu, own.y, me.lane / 4 * 4 + i);
            if (i >= left) continue;
            total.x += first;
            total.y += second;
          }
        } else if (!rehearses && me.t < left) {
          part[16 * me.t] = 0.0f + own.x;
          part[16 * me.t + 8] = 0.0f + own.y;
        }
      } else {
        if (!rehearses) wait_barrier(ring.barriers + 8 * turn, 0);
        float product[4];
        multiply_fp8_block(at, x[0], me, product);
        const float scale = fp8_scale(at);
        if (!rehearses && me.t == 0) {
          part[0] = 0.0f + scale * product[0];
          part[8] = 0.0f + scale * product[2];
        }
      }
#pragma unroll
      for (int i = 0; i + 1 < kTurns; ++i)
#pragma unroll
        for (int s = 0; s < 4; ++s) x[i][s] = x[i + 1][s];
    }
    if (!shared && me.t == 0) {
      results[16 * index + me.g] = total.x;
      results[16 * index + me.g + 8] = total.y;
    }
    if (!rehearses) __syncthreads();
    if (rehearses ? index == kSum : me.warp == 0) {
      const uint32_t at = shared_address(rehearses ? shared_memory : shared_memory + plan.results);
      const float sum =
          sum_of_experts(at, at + 4 * (kWeights + me.lane % 16), top_k, a.shared.blocks);
      if (!rehearses && adds) {
        a.partial[output] = sum;
        if (a.residual != nullptr) a.residual[output] = before + sum;
      }
    }
    if (!rehearses) break;
  }
  // Nobody reads the logits any more.
  const int logit = static_cast<int>(threadIdx.x) - kWarp;
  if (tile == 0 && logit >= 0 && logit <= a.route.experts) a.route.words.logits[logit] = 0;
}
static_assert(kFewExperts < kThreads - kWarp, "a thread for each logit");

bool is_usual_int4(const TileStack& w) {
  return w.format == WeightFormat::kInt4Group128 && is_common(w);
}
Role role_of(const TileStack& w, int warps) {
  const int blocks = (w.blocks + warps - 1) / warps;
  if (!is_coded(w.format)) return {.blocks = blocks, .turns = blocks, .turn_bytes = w.block_bytes};
  return {.blocks = blocks, .turns = (blocks + kQuad - 1) / kQuad, .turn_bytes = kQuadBytes};
}

}  // namespace

bool down_one(cudaStream_t stream, const ExpertsDown& args) {
  const TileStack &w = args.w, &shared = args.shared;
  if (!is_usual_int4(w) || !(is_usual_int4(shared) || shared.format == WeightFormat::kFp8Block128))
    return false;
  CHECK(w.blocks <= kMostBlocks && shared.blocks <= kMostBlocks, w.blocks, " and ", shared.blocks,
        " blocks of k");
  Plan plan{.routed = role_of(w, 1), .shared = role_of(shared, kSharedWarps)};
  const auto bytes_of = [](const Role& role) { return role.turns * role.turn_bytes; };
  plan.shared.weights = kRoutedWarps * bytes_of(plan.routed);
  plan.results = plan.shared.weights + kSharedWarps * bytes_of(plan.shared);
  const int bytes = plan.results + 4 * kWeights + (kFewChosen + kMostBlocks) * 64;
  const int turns = std::max(plan.routed.turns, plan.shared.turns);
  launch(stream, dim3(static_cast<unsigned>(w.tiles)), dim3(kThreads), static_cast<size_t>(bytes),
         turns == 1 ? one_kernel<1> : one_kernel<2>, args, plan);
  return true;
}

}  // namespace pewter::cuda
