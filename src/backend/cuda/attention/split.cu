// Decode attention over stretches of positions.
//
// Split of work: a block takes one stretch of one KV head of one sequence and up to 16·kGroups
// query rows (a query row is a head of the KV head's group in one of the step's rows). Four warps
// serve 16 query rows; all warps share each tile of 32 keys and values, which arrive by cp.async
// two tiles deep. Scores and sums go through matrix instructions: a warp scores 8 of the tile's
// positions, then owns a quarter of the head's dimensions. A second kernel adds the stretches in
// order and applies the gate. Bytes: keys and values of the sequence once per 16·kGroups query
// rows, partial results of a stretch (query rows × (D + 2) × 4) written and read once. Precision:
// bf16 q, k, v and probabilities, f32 scores and sums. Limits: memory for long contexts; launch and
// tile latency for short ones.

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/common/matrix.cuh"
#include "backend/cuda/linear/coded_rows.cuh"
#include "backend/device.h"

namespace pewter::cuda {
namespace {

constexpr int kPage = static_cast<int>(kPageTokens);
constexpr int kTile = 32;          // positions
constexpr int kHead = 256;         // dimensions
constexpr int kPitch = kHead + 8;  // of a row in shared memory: 16 bytes apart in banks
constexpr int kScorePitch = kTile + 4;
constexpr int kStages = 2;

struct Shared {
  __nv_bfloat16 keys[kStages][kTile][kPitch];
  __nv_bfloat16 values[kStages][kTile][kPitch];
};

template <int kGroups>
constexpr size_t shared_bytes() {
  return sizeof(Shared) + kGroups * 16 * (kPitch * 2 + kScorePitch * 4);
}

// 16 bytes, or zeros.
__device__ inline void copy_async(void* to, const void* from, bool wanted) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = wanted ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes));
}
__device__ inline void commit_async() { asm volatile("cp.async.commit_group;"); }
template <int kLeft>
__device__ inline void await_async() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

__device__ inline void load_matrices(uint32_t (&r)[4], const void* at) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(at));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], const void* at) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(at));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
template <int kThreads>
__device__ inline void group_barrier(int group) {  // of the four warps that share 16 query rows
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kThreads) : "memory");
}

// Partials of sequence s begin after those of the ones before it.
__device__ inline int64_t first_partial(const AttentionBatch& b, int sequence) {
  int64_t sum = 0;
  for (int s = 0; s < sequence; ++s) {
    const int rows = b.row_begin[s + 1] - b.row_begin[s];
    sum += static_cast<int64_t>(stretches_of(b.context_length[s] + rows)) * rows;
  }
  return sum;
}

template <int kGroups>
__global__ void __launch_bounds__(128 * kGroups)
    stretch_kernel(const __grid_constant__ AttendArgs a) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp % 4, group = threadIdx.x / 128;
  auto* const q_rows =
      reinterpret_cast<__nv_bfloat16*>(shared_memory + sizeof(Shared)) + group * 16 * kPitch;
  auto* const scores =
      reinterpret_cast<float*>(shared_memory + sizeof(Shared) + kGroups * 16 * kPitch * 2) +
      group * 16 * kScorePitch;
  start_next();
  wait_for_inputs();
  const int sequence = blockIdx.z, kv_head = blockIdx.y % a.shape.kv_heads;
  const int first_query = (blockIdx.y / a.shape.kv_heads * kGroups + group) * 16;
  const int heads = a.shape.query_heads / a.shape.kv_heads;  // query heads of the KV head
  const int row_begin = a.batch.row_begin[sequence];
  const int rows = a.batch.row_begin[sequence + 1] - row_begin;
  const int context = a.batch.context_length[sequence];
  const int begin = stretch_begin(static_cast<int>(blockIdx.x));
  const int end = min(stretch_begin(static_cast<int>(blockIdx.x) + 1), context + rows);
  if (begin >= end || blockIdx.y / a.shape.kv_heads * kGroups * 16 >= rows * heads) return;

  const int32_t* pages = a.batch.page_table + sequence * a.batch.page_table_stride;
  const auto request = [&](int tile) {
    const int position = begin + tile * kTile, stage = tile % kStages;
    if (position < end) {
      const int64_t at = pages[position / kPage] * a.cache.page_bytes +
                         (static_cast<int64_t>(kv_head) * kPage + position % kPage) * kHead * 2;
      for (int i = threadIdx.x; i < kTile * kHead / 8; i += 128 * kGroups) {
        const int row = i / (kHead / 8), column = i % (kHead / 8) * 8;
        // Past the end lies what another sequence left there; a weight of 0 does not silence a NaN.
        const bool wanted = position + row < end;
        copy_async(&shared.keys[stage][row][column], a.cache.keys + at + i * 16, wanted);
        copy_async(&shared.values[stage][row][column], a.cache.values + at + i * 16, wanted);
      }
    }
    commit_async();
  };
  request(0);
  request(1);

  for (int i = threadIdx.x % 128; i < 16 * kHead / 8; i += 128) {
    const int query = first_query + i / (kHead / 8), column = i % (kHead / 8) * 8;
    const int row = query / heads, head = kv_head * heads + query % heads;
    uint4 eight = make_uint4(0, 0, 0, 0);
    if (row < rows)
      eight = *reinterpret_cast<const uint4*>(a.q + (row_begin + row) * a.q_stride + head * kHead +
                                              column);
    *reinterpret_cast<uint4*>(q_rows + i / (kHead / 8) * kPitch + column) = eight;
  }

  const int g = lane / 4, t = lane % 4;
  // Positions query rows g and g + 8 may see: below this.
  const int limit[2] = {context + (first_query + g) / heads + 1,
                        context + (first_query + g + 8) / heads + 1};
  const float scale = 1.4426950408889634f / sqrtf(static_cast<float>(kHead));
  float largest[2] = {-INFINITY, -INFINITY}, total[2] = {}, sums[kHead / 32][4] = {};
  const int tiles = (end - begin + kTile - 1) / kTile;
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % kStages;
    await_async<kStages - 1>();
    __syncthreads();

    float score[4] = {};  // 16 query rows × this warp's 8 positions
#pragma unroll
    for (int d = 0; d < kHead; d += 32) {
      uint32_t q[2][4], k[4];
      load_matrices(q[0], q_rows + lane % 16 * kPitch + d + lane / 16 * 8);
      load_matrices(q[1], q_rows + lane % 16 * kPitch + d + 16 + lane / 16 * 8);
      load_matrices(k, &shared.keys[stage][8 * warp + lane % 8][d + lane / 8 * 8]);
      multiply_add(score, q[0], k[0], k[1]);
      multiply_add(score, q[1], k[2], k[3]);
    }
    const int column = 8 * warp + 2 * t;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int position = begin + tile * kTile + column + i;
        scores[(g + 8 * half) * kScorePitch + column + i] =
            position < limit[half] && position < end ? score[2 * half + i] * scale : -INFINITY;
      }
    group_barrier<128>(group);

    // Every warp of the group weighs all 32 positions, in the layout of the second product.
    float weight[2][2][4];  // [16-position step][half][positions 2t, 2t+1, 2t+8, 2t+9]
    float shrink[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = largest[half];
#pragma unroll
      for (int step = 0; step < 2; ++step)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          weight[step][half][i] =
              scores[(g + 8 * half) * kScorePitch + 16 * step + 2 * t + i % 2 + i / 2 * 8];
          most = fmaxf(most, weight[step][half][i]);
        }
      most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
      const float safe = most == -INFINITY ? 0.0f : most;  // nothing visible yet
      shrink[half] = exp2f(largest[half] - safe);
      largest[half] = most;
      float sum = 0;
#pragma unroll
      for (int step = 0; step < 2; ++step)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          weight[step][half][i] = exp2f(weight[step][half][i] - safe);
          sum += weight[step][half][i];
        }
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
      total[half] = fmaf(total[half], shrink[half], sum);
    }
#pragma unroll
    for (int n = 0; n < kHead / 32; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] *= shrink[i / 2];
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const auto& w = weight[step];
      const uint32_t p[4] = {pack_bf16(w[0][0], w[0][1]), pack_bf16(w[1][0], w[1][1]),
                             pack_bf16(w[0][2], w[0][3]), pack_bf16(w[1][2], w[1][3])};
#pragma unroll
      for (int n = 0; n < kHead / 32; n += 2) {
        uint32_t v[4];
        load_matrices_transposed(
            v,
            &shared.values[stage][16 * step + lane % 16][kHead / 4 * warp + 8 * n + lane / 16 * 8]);
        multiply_add(sums[n], p, v[0], v[1]);
        multiply_add(sums[n + 1], p, v[2], v[3]);
      }
    }
    __syncthreads();
    request(tile + kStages);
  }

  const int64_t first = first_partial(a.batch, sequence);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = first_query + g + 8 * half, row = query / heads;
    if (row >= rows) continue;
    const int head = kv_head * heads + query % heads;
    float* const to =
        a.partials +
        ((first + static_cast<int64_t>(blockIdx.x) * rows + row) * a.shape.query_heads + head) *
            (kHead + 2);
#pragma unroll
    for (int n = 0; n < kHead / 32; ++n)
      *reinterpret_cast<float2*>(to + kHead / 4 * warp + 8 * n + 2 * t) =
          make_float2(sums[n][2 * half], sums[n][2 * half + 1]);
    if (warp == 0 && t == 0) {
      to[kHead] = largest[half];
      to[kHead + 1] = total[half];
    }
  }
}

// One block a (query head, row): the stretches in order, then the gate. A thread a dimension.
__global__ void __launch_bounds__(kHead) merge_kernel(const __grid_constant__ AttendArgs a) {
  start_next();
  wait_for_inputs();
  const int head = blockIdx.x, row = blockIdx.y, dimension = threadIdx.x;
  const int sequence = a.batch.row_sequence[row], begin = a.batch.row_begin[sequence];
  const int rows = a.batch.row_begin[sequence + 1] - begin;
  const int visible = a.batch.context_length[sequence] + row - begin + 1;
  const int64_t step = static_cast<int64_t>(rows) * a.shape.query_heads * (kHead + 2);
  const float* from =
      a.partials +
      ((first_partial(a.batch, sequence) + row - begin) * a.shape.query_heads + head) * (kHead + 2);
  const int stretches = stretches_of(visible);
  float largest = -INFINITY;
  for (int i = 0; i < stretches; ++i) largest = fmaxf(largest, from[i * step + kHead]);
  float total = 0, sum = 0;
  for (int i = 0; i < stretches; ++i) {
    const float factor = exp2f(from[i * step + kHead] - largest);
    total = fmaf(from[i * step + kHead + 1], factor, total);
    sum = fmaf(from[i * step + dimension], factor, sum);
  }
  const float gate = to_float(a.in[row * a.in_stride + head * 2 * kHead + kHead + dimension]);
  const __nv_bfloat16 value = __float2bfloat16(sum / total * sigmoid(gate));
  a.out[row * a.out_stride + head * kHead + dimension] = value;
  if (a.codes == nullptr) return;
  __shared__ __align__(16) __nv_bfloat16 values[kHead];
  values[dimension] = value;
  __syncthreads();
  if (dimension >= kWarp) return;
  const int at = head * kHead + 8 * dimension, width = a.shape.query_heads * kHead;
  code_inputs(*reinterpret_cast<const uint4*>(values + 8 * dimension), at, true, width,
              a.codes + static_cast<int64_t>(row) * row_pitch(width), a.halves);
}

template <int kGroups>
void run(cudaStream_t stream, const AttendArgs& args, int tiles) {
  static const bool prepared = [] {
    CUDA_CHECK(cudaFuncSetAttribute(stretch_kernel<kGroups>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes<kGroups>())));
    return true;
  }();
  (void)prepared;
  const int most = static_cast<int>(args.batch.page_table_stride) * kPage;
  const dim3 grid(static_cast<unsigned>(stretches_of(most)),
                  static_cast<unsigned>(args.shape.kv_heads * ((tiles + kGroups - 1) / kGroups)),
                  static_cast<unsigned>(args.batch.sequences));
  launch(stream, grid, dim3(128 * kGroups), shared_bytes<kGroups>(), stretch_kernel<kGroups>, args);
}

}  // namespace

bool can_split(const AttentionShape& shape) { return shape.head_dim == kHead; }

int64_t split_partial_floats(const AttentionShape& shape, int64_t positions, int64_t sequences,
                             int64_t rows) {
  // Sequences share the positions; each may have all the short stretches.
  const int64_t stretches = sequences * 45 + positions / 512 + 1;
  return stretches * rows * shape.query_heads * (kHead + 2);
}

void attend_split(cudaStream_t stream, const AttendArgs& args) {
  const int heads = args.shape.query_heads / args.shape.kv_heads;
  const int tiles = (args.most_rows * heads + 15) / 16;
  if (tiles == 1)
    run<1>(stream, args, tiles);
  else  // more groups would need more shared memory than every GPU has
    run<2>(stream, args, tiles);
  launch(
      stream,
      dim3(static_cast<unsigned>(args.shape.query_heads), static_cast<unsigned>(args.batch.rows)),
      dim3(kHead), 0, merge_kernel, args);
}

}  // namespace pewter::cuda
