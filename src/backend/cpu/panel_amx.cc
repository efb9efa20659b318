// int4 panels times many rows of codes by Intel's matrix unit (AMX).
//
// Split of work: 16 rows × 2 panels × 128 inputs a step. A step of a panel, 64 bytes of 16 outputs
// × 4 inputs, is just a row of the unit's second operand, so unpacked nibbles are tiles as they
// are: unpacked once a group for all rows. Rows that lie evenly are tiles where they are, others,
// and the last ones, are copied. Bytes: the panels once, rows and sums from cache once a group.
// Precision: exact integers, then the f32 steps of panel_avx512.cc in the same order: the same
// bits, so that the number of rows may choose between them. Limits: scaling the sums, four vector
// instructions for each 16, beside products that take a fraction of that.

#include "backend/cpu/panel_rows.h"

#if defined(__x86_64__)

#include <hwy/base.h>
#include <immintrin.h>

#include <cstring>

#include "backend/cpu/panel.h"
#include "backend/cpu/panel_scales_avx512.h"

// g++ 12's own headers build "undefined" vectors in a way that this warning sees.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-int8")
namespace pewter {
namespace {

constexpr int64_t kGroup = 128, kGroupBytes = 1024, kTile = 16, kLine = 64;
constexpr int kPair = 2;  // panels

// The unit's shape: eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

struct alignas(64) Room {
  int8_t weights[kPair][2][kTile * kLine];  // two halves of a group, code − zero
  int8_t inputs[2][kTile * kLine];
  int32_t sums[2][kPair][kTile * kTile];  // of this step and the last
};

// Code − zero of a group: quads of inputs in turn, 2j from the low nibbles of load j, 2j + 1 from
// the high ones. With the zero point taken off here, once for all rows, sums need no correction.
void unpack_group(const Panels& w, int64_t panel, int64_t g, int8_t (&to)[2][kTile * kLine]) {
  const std::byte* from = w.values + panel * w.value_stride + g * kGroupBytes;
  __m512i zero = _mm512_set1_epi8(8);
  if (w.zeros != nullptr)  // of each output, in the four bytes of its lane
    zero = _mm512_mullo_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(
                                  w.zeros + panel * w.zero_stride + g * kTile))),
                              _mm512_set1_epi32(0x01010101));
  const __m512i low = _mm512_set1_epi8(0x0F);
  for (int64_t j = 0; j < kGroupBytes / kLine; ++j) {
    const __m512i both = _mm512_loadu_si512(from + j * kLine);
    int8_t* at = to[j / 8] + j % 8 * 2 * kLine;
    _mm512_store_si512(at, _mm512_sub_epi8(_mm512_and_si512(both, low), zero));
    _mm512_store_si512(at + kLine,
                       _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(both, 4), low), zero));
  }
}

// Where the codes of up to 16 rows lie: at a stride, or in need of a copy.
struct RowTile {
  const int8_t* const* x = nullptr;
  int64_t rows = 0, stride = 0;

  RowTile() = default;
  RowTile(const int8_t* const* first, int64_t count)
      : x(first), rows(count), stride(count > 1 ? first[1] - first[0] : 0) {
    for (int64_t r = 1; r < count; ++r)
      if (x[r] - x[r - 1] != stride) stride = 0;
    if (count < kTile || stride < kLine) stride = 0;
  }
};

// out += a group's sums, scaled, for one tile of rows and one panel. The first group starts from
// zero, as the other kernels' sums do.
template <bool kFirst>
void add_sums(const Panels& w, int64_t panel, int64_t g, const RowTile& tile, const int32_t* sums,
              float* out, int64_t out_stride) {
  const __m512 scale = load_scales(
      w.scales + panel * w.scale_stride + g * kTile * dtype_bytes(w.scale_dtype), w.scale_dtype);
  for (int64_t r = 0; r < tile.rows; ++r) {
    const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(code_scales(tile.x[r], w.k)[g]));
    const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums + r * kTile));
    float* to = out + r * out_stride;
    const __m512 before = kFirst ? _mm512_setzero_ps() : _mm512_loadu_ps(to);
    _mm512_storeu_ps(to, _mm512_fmadd_ps(sum, both, before));
  }
}

// The products of one tile of rows with the weights in tiles 4 to 7, into room.sums[buffer].
void multiply_tile(const RowTile& tile, int64_t g, int64_t buffer, Room& room) {
  if (tile.stride == 0) {  // rows beyond the last keep what they had: their sums are not read
    for (int64_t i = 0; i < tile.rows; ++i)
      for (int64_t half = 0; half < 2; ++half)
        std::memcpy(room.inputs[half] + i * kLine, tile.x[i] + g * kGroup + half * kLine, kLine);
    _tile_loadd(2, room.inputs[0], kLine);
    _tile_loadd(3, room.inputs[1], kLine);
  } else {
    const int8_t* inputs = tile.x[0] + g * kGroup;
    _tile_loadd(2, inputs, tile.stride);
    _tile_loadd(3, inputs + kLine, tile.stride);
  }
  _tile_zero(0);
  _tile_zero(1);
  _tile_dpbssd(0, 2, 4);
  _tile_dpbssd(1, 2, 6);
  _tile_dpbssd(0, 3, 5);
  _tile_dpbssd(1, 3, 7);
  _tile_stored(0, room.sums[buffer][0], kTile * 4);
  _tile_stored(1, room.sums[buffer][1], kTile * 4);
}

// Panels panel and panel + 1, or the last one twice, of one group times some tiles of rows. The
// vector units scale a tile's sums while the matrix unit, whose results take a hundred cycles,
// makes the next one's.
template <bool kFirst>
void multiply_group(const PanelArgs& args, int64_t panel, int64_t g, const RowTile* tiles,
                    int64_t tile_count, float* out, Room& room) {
  const Panels& w = args.w;
  const int64_t panels = args.count - panel < kPair ? 1 : kPair;
  for (int64_t p = 0; p < panels; ++p) unpack_group(w, panel + p, g, room.weights[p]);
  _tile_loadd(4, room.weights[0][0], kLine);
  _tile_loadd(5, room.weights[0][1], kLine);
  _tile_loadd(6, room.weights[panels - 1][0], kLine);
  _tile_loadd(7, room.weights[panels - 1][1], kLine);
  for (int64_t t = 0; t <= tile_count; ++t) {
    if (t < tile_count) multiply_tile(tiles[t], g, t % 2, room);
    if (t == 0) continue;
    for (int64_t p = 0; p < panels; ++p)
      add_sums<kFirst>(w, panel + p, g, tiles[t - 1], room.sums[(t - 1) % 2][p],
                       out + (t - 1) * kTile * args.out_stride + (panel + p) * kTile,
                       args.out_stride);
  }
}

}  // namespace

void panel_rows_int4_amx(const PanelArgs& args) {
  constexpr int64_t kTiles = 8;  // a block of rows, whose sums and codes stay in L2
  const TileConfig config;
  _tile_loadconfig(&config);
  Room room = {};
  for (int64_t r = 0; r < args.m; r += kTiles * kTile) {
    RowTile tiles[kTiles];
    int64_t count = 0;
    for (; count < kTiles && r + count * kTile < args.m; ++count) {
      const int64_t first = r + count * kTile, left = args.m - first;
      tiles[count] = RowTile(args.codes + first, left < kTile ? left : kTile);
    }
    float* out = args.out + r * args.out_stride;
    for (int64_t panel = 0; panel < args.count; panel += kPair)
      for (int64_t g = 0; g < args.w.k / kGroup; ++g)
        if (g == 0)
          multiply_group<true>(args, panel, g, tiles, count, out, room);
        else
          multiply_group<false>(args, panel, g, tiles, count, out, room);
  }
  _tile_release();
}

}  // namespace pewter
HWY_POP_ATTRIBUTES

#endif
