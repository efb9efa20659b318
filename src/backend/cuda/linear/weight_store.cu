// One thread packs one lane's 16 bytes of one record, or of one tail, from canonical rows in device
// memory. Reads are scattered by two to eight bytes; it runs once, at load, beside the disk.

#include "backend/cuda/common/kernel.cuh"
#include "backend/cuda/linear/weight_store.h"
#include "tensor/formats/fp8_block128.h"

namespace pewter::cuda {
namespace {

struct PackArgs {
  WeightFormat format;
  DType scale_dtype;
  const uint8_t *rows, *scales, *zeros;  // canonical
  int64_t row_bytes;
  int64_t row_count, k;  // of the given rows
  uint8_t* tiles;        // first packed tile
  int64_t blocks;        // of a tile
  BlockShape shape;
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

__device__ inline uint8_t* block_at(const PackArgs& a, int64_t tile, int64_t block) {
  return a.tiles + (tile * a.blocks + block) * a.shape.bytes();
}

__global__ void pack_values_kernel(PackArgs a, int64_t count) {
  const int64_t at = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (at >= count) return;
  const int lane = static_cast<int>(at % kWarp), g = lane / 4, t = lane % 4;
  const int64_t records = a.blocks * a.shape.records;
  const int64_t record = at / kWarp % records, tile = at / kWarp / records;
  uint32_t words[4];
  for (int w = 0; w < 4; ++w) words[w] = 0;
  // Pair p of a step: output g + 8·(p & 1), inputs base + 2·(p / 2).
  const auto pair = [&](int64_t base, int p) {
    return pair_at(a, tile * kTileOutputs + g + 8 * (p & 1), base + 2 * (p / 2));
  };
  switch (a.format) {
    case WeightFormat::kInt4Group128:
      for (int w = 0; w < 4; ++w)
        for (int i = 0; i < 4; i += 2)
          for (int high = 0; high < 2; ++high) {
            const int64_t k = 64 * record + 32 * (w / 2) + 8 * t + 4 * (w % 2) + i;
            const uint32_t codes = pair_at(a, tile * kTileOutputs + g + 8 * high, k);
            words[w] |= codes << (8 * i + 4 * high);
          }
      break;
    case WeightFormat::kInt8Row:
      for (int w = 0; w < 4; ++w)
        for (int i = 0; i < 4; i += 2)
          words[w] |= pair_at(a, tile * kTileOutputs + g + 8 * (w % 2),
                              32 * record + 8 * t + 4 * (w / 2) + i)
                      << (8 * i);
      break;
    case WeightFormat::kFp8Block128:
      for (int s = 0; s < 2; ++s)
        for (int p = 0; p < 4; ++p)
          words[2 * s + p / 2] |= pair(32 * record + 8 * t + 4 * s, p) << (16 * (p & 1));
      break;
    default:
      for (int p = 0; p < 4; ++p) words[p] = pair(64 * (record / 4) + 16 * t + 4 * (record % 4), p);
  }
  uint8_t* const to = block_at(a, tile, record / a.shape.records) +
                      record % a.shape.records * kRecordBytes + lane * 16;
  *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
}

// One thread a (tile, block, output).
__global__ void pack_tails_kernel(PackArgs a, int64_t count) {
  const int64_t at = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (at >= count) return;
  const int64_t place = at % kTileOutputs, block = at / kTileOutputs % a.blocks;
  const int64_t tile = at / kTileOutputs / a.blocks;
  uint8_t* const tail = block_at(a, tile, block) + a.shape.records * kRecordBytes;
  if (a.format == WeightFormat::kFp8Block128) {
    if (place >= 4) return;
    const int64_t from = tile * kTileOutputs / 128 * a.blocks + block;
    reinterpret_cast<float*>(tail)[place] =
        a.scale_dtype == DType::kF32
            ? reinterpret_cast<const float*>(a.scales)[from]
            : to_float(reinterpret_cast<const __nv_bfloat16*>(a.scales)[from]);
    return;
  }
  const int64_t row = tile * kTileOutputs + place / 2 + place % 2 * 8;
  const bool inside = row < a.row_count;
  const int64_t from = row * a.blocks + block;
  const bool wide = a.scale_dtype == DType::kF32;
  if (wide)
    reinterpret_cast<uint32_t*>(tail)[place] =
        inside ? reinterpret_cast<const uint32_t*>(a.scales)[from] : 0;
  else
    reinterpret_cast<uint16_t*>(tail)[place] =
        inside ? reinterpret_cast<const uint16_t*>(a.scales)[from] : uint16_t{0};
  if (a.zeros != nullptr) tail[(wide ? 64 : 32) + place] = inside ? a.zeros[from] : uint8_t{8};
}

BlockShape shape_of(const WeightSpec& spec) {
  return block_shape(spec.format, spec.scale_dtype, spec.has_zeros);
}

int64_t matrix_bytes(const WeightSpec& spec) {
  const BlockShape shape = shape_of(spec);
  return tiles_of(spec.n) * (round_up(spec.k, shape.inputs) / shape.inputs) * shape.bytes();
}

}  // namespace

int64_t tiled_bytes(const WeightSpec& spec) {
  const int64_t row_scales =
      spec.format == WeightFormat::kInt8Row ? round_up(spec.n, kTileOutputs) * 4 : 0;
  return spec.count * (matrix_bytes(spec) + row_scales);
}

WeightMatrix tiled_weight(const WeightSpec& spec, std::shared_ptr<const Buffer> memory) {
  WeightMatrix w{.format = spec.format, .n = spec.n, .k = spec.k, .count = spec.count};
  w.layout = kTiledLayout;
  w.values = {memory->data(), DType::kU8, {spec.count, matrix_bytes(spec)}};
  const bool scaled =
      spec.format == WeightFormat::kInt4Group128 || spec.format == WeightFormat::kFp8Block128;
  if (scaled) w.scales = {memory->data(), spec.scale_dtype, {spec.count, 0}};
  if (spec.format == WeightFormat::kInt8Row)  // padding stays zero, as memory is allocated
    w.scales = {memory->data() + spec.count * matrix_bytes(spec),
                DType::kF32,
                {spec.count, round_up(spec.n, kTileOutputs)}};
  if (spec.has_zeros) w.zeros = {memory->data(), DType::kU8, {spec.count, 0}};
  w.storage = std::move(memory);
  return w;
}

void pack_rows(cudaStream_t stream, const WeightMatrix& w, int64_t index, int64_t row_begin,
               const WeightMatrix& rows) {
  const BlockShape shape = shape_of(spec_of(w));
  const int64_t blocks = round_up(w.k, shape.inputs) / shape.inputs, tiles = tiles_of(rows.n);
  const auto bytes = [](const TensorView& part) {
    return reinterpret_cast<const uint8_t*>(part.data());
  };
  const PackArgs args{.format = w.format,
                      .scale_dtype = rows.scales.defined() ? rows.scales.dtype() : DType::kF32,
                      .rows = bytes(rows.values),
                      .scales = bytes(rows.scales),
                      .zeros = bytes(rows.zeros),
                      .row_bytes = rows.values.bytes() / rows.n,
                      .row_count = rows.n,
                      .k = w.k,
                      .tiles = reinterpret_cast<uint8_t*>(w.values[index].data()) +
                               row_begin / kTileOutputs * blocks * shape.bytes(),
                      .blocks = blocks,
                      .shape = shape};
  const auto grid = [](int64_t count) { return static_cast<unsigned>((count + 255) / 256); };
  const int64_t lanes = tiles * blocks * shape.records * kWarp;
  pack_values_kernel<<<grid(lanes), 256, 0, stream>>>(args, lanes);
  CUDA_CHECK(cudaGetLastError());
  if (w.format == WeightFormat::kInt8Row)
    CUDA_CHECK(cudaMemcpyAsync(w.scales[index].data_as<float>() + row_begin, args.scales,
                               static_cast<size_t>(rows.n) * 4, cudaMemcpyDeviceToDevice, stream));
  if (shape.tail_bytes == 0) return;
  const int64_t places = tiles * blocks * kTileOutputs;
  pack_tails_kernel<<<grid(places), 256, 0, stream>>>(args, places);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace pewter::cuda
