// One thread packs one lane's 16 bytes of one record, from canonical rows in device memory. Reads
// are scattered by two to eight bytes; it runs once, at load, beside the disk.

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/linear/weight_store.h"
#include "tensor/formats/fp8_block128.h"

namespace pewter::cuda {
namespace {

struct PackArgs {
  WeightFormat format;
  const uint8_t* rows;  // canonical values
  int64_t row_bytes;
  int64_t row_count, k;  // of the given rows
  uint4* tiles;          // first packed tile
  int64_t records;       // a tile
};

// A pair of canonical elements, inputs k and k + 1 of one row; zero (int4: code 8) outside.
__device__ uint32_t pair_at(const PackArgs& a, int64_t row, int64_t k) {
  const bool inside = row < a.row_count;
  const uint8_t* from = a.rows + row * a.row_bytes;
  if (a.format == WeightFormat::kInt4Group128) {
    if (!inside || k >= a.k) return 0x0808;
    const uint32_t byte = from[k / 2];
    return (byte & 15u) | (byte >> 4 << 8);
  }
  const auto element = [&](int64_t i) -> uint32_t {
    if (!inside || i >= a.k) return 0;
    return a.format == WeightFormat::kBF16 ? reinterpret_cast<const uint16_t*>(from)[i] : from[i];
  };
  const int bits = a.format == WeightFormat::kBF16 ? 16 : 8;
  return element(k) | element(k + 1) << bits;
}

__global__ void pack_values_kernel(PackArgs a, int64_t count) {
  const int64_t at = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (at >= count) return;
  const int lane = static_cast<int>(at % kWarp), g = lane / 4, t = lane % 4;
  const int64_t record = at / kWarp % a.records, tile = at / kWarp / a.records;
  uint32_t words[4];
  for (int w = 0; w < 4; ++w) words[w] = 0;
  // Step s of the record, pair p of the step: output g + 8·(p & 1), inputs base + 2·(p / 2).
  const auto pair = [&](int64_t base, int p) {
    return pair_at(a, tile * kTileOutputs + g + 8 * (p & 1), base + 2 * (p / 2));
  };
  switch (a.format) {
    case WeightFormat::kInt4Group128:
      for (int s = 0; s < 4; ++s)
        for (int p = 0; p < 4; ++p) {
          const uint32_t codes = pair(64 * record + 16 * t + 4 * s, p);
          words[s] |= (codes & 15u) << (4 * p) | (codes >> 8) << (4 * (p + 4));
        }
      break;
    case WeightFormat::kFp8Block128:
      for (int s = 0; s < 2; ++s)
        for (int p = 0; p < 4; ++p)
          words[2 * s + p / 2] |= pair(32 * record + 8 * t + 4 * s, p) << (16 * (p & 1));
      break;
    default:
      for (int p = 0; p < 4; ++p) words[p] = pair(64 * (record / 4) + 16 * t + 4 * (record % 4), p);
  }
  a.tiles[at] = make_uint4(words[0], words[1], words[2], words[3]);
}

// [rows, groups] to [tiles, groups, 16], output i at place 2·(i mod 8) + i / 8; outputs that are
// not there get zeros.
template <typename T>
__global__ void pack_groups_kernel(const T* rows, int64_t row_count, int64_t groups, T* tiles,
                                   int64_t count) {
  const int64_t at = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (at >= count) return;
  const int64_t place = at % kTileOutputs, group = at / kTileOutputs % groups;
  const int64_t output = place / 2 + place % 2 * 8;
  const int64_t row = at / kTileOutputs / groups * kTileOutputs + output;
  tiles[at] = row < row_count ? rows[row * groups + group] : T(0);
}

template <typename T>
void pack_groups(cudaStream_t stream, const TensorView& rows, int64_t groups, void* tiles,
                 int64_t tile_count) {
  const int64_t count = tile_count * groups * kTileOutputs;
  pack_groups_kernel<T><<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream>>>(
      reinterpret_cast<const T*>(rows.data()), rows.dim(1), groups, static_cast<T*>(tiles), count);
  CUDA_CHECK(cudaGetLastError());
}

constexpr int64_t kAlignment = 256;

}  // namespace

TiledSizes tiled_sizes(const WeightSpec& spec) {
  const int64_t tiles = tiles_of(spec.n);
  TiledSizes sizes{.value_bytes = tiles * tile_records(spec.format, spec.k) * kRecordBytes};
  if (spec.format == WeightFormat::kInt4Group128) {
    sizes.scales = tiles * kTileOutputs * (spec.k / 128);
    if (spec.has_zeros) sizes.zeros = sizes.scales;
  } else if (spec.format == WeightFormat::kFp8Block128) {
    sizes.scales = fp8_blocks(spec.n) * fp8_blocks(spec.k);
  }
  return sizes;
}

int64_t tiled_bytes(const WeightSpec& spec) {
  const TiledSizes sizes = tiled_sizes(spec);
  return round_up(spec.count * sizes.value_bytes, kAlignment) +
         round_up(spec.count * sizes.scales * dtype_bytes(spec.scale_dtype), kAlignment) +
         round_up(spec.count * sizes.zeros, kAlignment);
}

WeightMatrix tiled_weight(const WeightSpec& spec, std::shared_ptr<const Buffer> memory) {
  const TiledSizes sizes = tiled_sizes(spec);
  WeightMatrix w{.format = spec.format, .n = spec.n, .k = spec.k, .count = spec.count};
  w.layout = kTiledLayout;
  std::byte* at = memory->data();
  w.values = {at, DType::kU8, {spec.count, sizes.value_bytes}};
  at += round_up(spec.count * sizes.value_bytes, kAlignment);
  if (sizes.scales > 0) w.scales = {at, spec.scale_dtype, {spec.count, sizes.scales}};
  at += round_up(spec.count * sizes.scales * dtype_bytes(spec.scale_dtype), kAlignment);
  if (sizes.zeros > 0) w.zeros = {at, DType::kU8, {spec.count, sizes.zeros}};
  w.storage = std::move(memory);
  return w;
}

void pack_rows(cudaStream_t stream, const WeightMatrix& w, int64_t index, int64_t row_begin,
               const WeightMatrix& rows) {
  const int64_t records = tile_records(w.format, w.k), first_tile = row_begin / kTileOutputs;
  const int64_t tiles = tiles_of(rows.n), count = tiles * records * kWarp;
  std::byte* const values = w.values[index].data() + first_tile * records * kRecordBytes;
  const PackArgs args{.format = w.format,
                      .rows = reinterpret_cast<const uint8_t*>(rows.values.data()),
                      .row_bytes = rows.values.bytes() / rows.n,
                      .row_count = rows.n,
                      .k = w.k,
                      .tiles = reinterpret_cast<uint4*>(values),
                      .records = records};
  pack_values_kernel<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream>>>(args, count);
  CUDA_CHECK(cudaGetLastError());
  if (w.format == WeightFormat::kFp8Block128) {
    const int64_t blocks = fp8_blocks(w.k), bytes = dtype_bytes(w.scales.dtype());
    CUDA_CHECK(cudaMemcpyAsync(w.scales[index].data() + row_begin / kFp8Block * blocks * bytes,
                               rows.scales.data(), static_cast<size_t>(rows.scales.bytes()),
                               cudaMemcpyDeviceToDevice, stream));
  } else if (w.format == WeightFormat::kInt4Group128) {
    const int64_t groups = w.k / 128, first = first_tile * groups * kTileOutputs;
    const int64_t bytes = dtype_bytes(w.scales.dtype());
    std::byte* const scales = w.scales[index].data() + first * bytes;
    if (bytes == 2)
      pack_groups<uint16_t>(stream, rows.scales, groups, scales, tiles);
    else
      pack_groups<uint32_t>(stream, rows.scales, groups, scales, tiles);
    if (w.zeros.defined())
      pack_groups<uint8_t>(stream, rows.zeros, groups, w.zeros[index].data() + first, tiles);
  }
}

}  // namespace pewter::cuda
