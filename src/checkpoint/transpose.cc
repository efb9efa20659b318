// Transposition in tiles. A tile's rows are each one cache line of the input and its columns each
// one of the output, so every line is touched once whatever the strides are: plain loops lose most
// of their time to strides that are powers of two.
#include <algorithm>
#include <array>
#include <cstdint>

#include "checkpoint/linear_reader.h"

namespace pewter {
namespace {

template <typename T>
void transpose(const T* in, int64_t rows, int64_t columns, T* out) {
  constexpr int64_t kTile = 64 / static_cast<int64_t>(sizeof(T));
  std::array<T, static_cast<size_t>(kTile * kTile)> tile;
  for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
    for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
      if (c0 + kTile > columns || r0 + kTile > rows) {
        for (int64_t c = c0; c < std::min(columns, c0 + kTile); ++c)
          for (int64_t r = r0; r < std::min(rows, r0 + kTile); ++r)
            out[c * rows + r] = in[r * columns + c];
        continue;
      }
      for (int64_t r = 0; r < kTile; ++r)
        std::copy_n(in + (r0 + r) * columns + c0, kTile, tile.data() + r * kTile);
      for (int64_t c = 0; c < kTile; ++c) {
        T* to = out + (c0 + c) * rows + r0;
        for (int64_t r = 0; r < kTile; ++r) to[r] = tile[static_cast<size_t>(r * kTile + c)];
      }
    }
  }
}

}  // namespace

void transpose32(const uint32_t* in, int64_t rows, int64_t columns, uint32_t* out) {
  transpose(in, rows, columns, out);
}
void transpose16(const uint16_t* in, int64_t rows, int64_t columns, uint16_t* out) {
  transpose(in, rows, columns, out);
}

}  // namespace pewter
