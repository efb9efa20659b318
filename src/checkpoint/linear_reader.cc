#include "checkpoint/linear_reader.h"

#include <algorithm>
#include <cstring>

#include "checkpoint/data_checks.h"
#include "tensor/formats/fp8_block128.h"
#include "tensor/formats/int4_group128.h"

namespace pewter {
namespace {

constexpr int64_t kGranule = 128;
constexpr int64_t kPage = 4096;
// Below this a direct read costs more in latency than it saves in copying.
constexpr int64_t kDirectBytes = int64_t{256} << 10;

std::string at_text(int64_t row, int64_t column) { return str_cat("[", row, ", ", column, "]"); }

template <typename T>
T* typed(std::span<std::byte> bytes) {
  return reinterpret_cast<T*>(bytes.data());
}

}  // namespace

std::vector<RowRange> split_rows(const LinearSource& source) {
  const int64_t row_bytes = source.format == WeightFormat::kInt4Group128
                                ? source.k / 2
                                : source.k * dtype_bytes(*source.values->info.dtype);
  const int64_t rows = std::max(kGranule, kPieceBytes / row_bytes / kGranule * kGranule);
  std::vector<RowRange> pieces;
  for (int64_t begin = 0; begin < source.n; begin += rows)
    pieces.push_back({begin, std::min(source.n, begin + rows)});
  return pieces;
}

Result<std::span<std::byte>> Staging::take(int64_t bytes) {
  if (bytes > buffer_.bytes()) {
    buffer_ = Buffer();
    TRY_ASSIGN(buffer_, memory_(bytes));
  }
  return std::span(buffer_.data(), static_cast<size_t>(bytes));
}

void LinearReader::fault(const StoredTensor& tensor, std::string_view reason) {
  findings_.fault(checkpoint_.file_name(tensor), tensor.info.name, reason);
}

Result<std::span<std::byte>> LinearReader::read_range(int file, int64_t offset, int64_t bytes,
                                                      int64_t element_bytes, Staging& staging) {
  const File& source = checkpoint_.file(file).file();
  if (bytes < kDirectBytes || !direct_io_[static_cast<size_t>(file)]) {
    TRY_ASSIGN(const std::span<std::byte> out, staging.take(bytes));
    TRY(source.read_at(offset, out));
    return out;
  }
  // Widened to whole pages, the range is one direct read.
  const int64_t begin = offset / kPage * kPage;
  const int64_t end = std::min(source.size_bytes(), (offset + bytes + kPage - 1) / kPage * kPage);
  TRY_ASSIGN(std::span<std::byte> out, staging.take(end - begin));
  TRY(source.read_direct(begin, out));
  const int64_t skip = offset - begin;
  if (skip % element_bytes != 0) {
    std::memmove(out.data(), out.data() + skip, static_cast<size_t>(bytes));
    return out.first(static_cast<size_t>(bytes));
  }
  return out.subspan(static_cast<size_t>(skip), static_cast<size_t>(bytes));
}

Result<std::span<std::byte>> LinearReader::read_columns(const StoredTensor& tensor,
                                                        RowRange columns, Staging& staging) {
  const int64_t element = dtype_bytes(*tensor.info.dtype);
  const int64_t rows = tensor.info.shape[0], width = tensor.info.shape[1];
  if (columns.size() == width)
    return read_range(tensor.file, tensor.info.begin, tensor.info.bytes(), element, staging);
  const int64_t row_bytes = columns.size() * element;
  TRY_ASSIGN(const std::span<std::byte> out, staging.take(rows * row_bytes));
  const File& file = checkpoint_.file(tensor.file).file();
  for (int64_t r = 0; r < rows; ++r)
    TRY(file.read_at(
        tensor.info.begin + (r * width + columns.begin) * element,
        out.subspan(static_cast<size_t>(r * row_bytes), static_cast<size_t>(row_bytes))));
  return out;
}

Status LinearReader::read(const LinearSource& source, RowRange rows, bool with_zeros,
                          RowBuffers& to, const RowSink& sink) {
  switch (source.format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      return read_plain(source, rows, to, sink);
    case WeightFormat::kFp8Block128:
      return read_fp8(source, rows, to, sink);
    case WeightFormat::kInt4Group128:
      return read_int4(source, rows, with_zeros, to, sink);
    case WeightFormat::kInt8Row:
      CHECK(false, "no file holds int8_row");
  }
  return {};
}

Status LinearReader::read_plain(const LinearSource& source, RowRange rows, RowBuffers& to,
                                const RowSink& sink) {
  const StoredTensor& tensor = *source.values;
  const DType dtype = *tensor.info.dtype;
  const int64_t row_bytes = source.k * dtype_bytes(dtype);
  TRY_ASSIGN(
      const std::span<std::byte> data,
      read_range(tensor.file, tensor.info.begin + source.values_offset + rows.begin * row_bytes,
                 rows.size() * row_bytes, dtype_bytes(dtype), to.values));
  if (const int64_t bad = find_nonfinite(data, dtype); bad >= 0) {
    const int64_t in_tensor = source.values_offset / row_bytes + rows.begin + bad / source.k;
    fault(tensor, str_cat("element ", at_text(in_tensor, bad % source.k), " is not finite"));
    return {};
  }
  sink({.format = source.format,
        .n = rows.size(),
        .k = source.k,
        .values = {data.data(), dtype, {1, rows.size(), source.k}}});
  return {};
}

Status LinearReader::read_fp8(const LinearSource& source, RowRange rows, RowBuffers& to,
                              const RowSink& sink) {
  const StoredTensor &tensor = *source.values, &scale_tensor = *source.scales;
  const int64_t k = source.k, across = fp8_blocks(k), down = fp8_blocks(rows.size());
  const int64_t scale_bytes = dtype_bytes(source.scale_dtype);
  const int64_t first_block = rows.begin / kFp8Block;
  TRY_ASSIGN(const std::span<std::byte> codes,
             read_range(tensor.file, tensor.info.begin + source.values_offset + rows.begin * k,
                        rows.size() * k, 1, to.values));
  TRY_ASSIGN(
      const std::span<std::byte> scales,
      read_range(scale_tensor.file, scale_tensor.info.begin + first_block * across * scale_bytes,
                 down * across * scale_bytes, scale_bytes, to.scales));
  bool good = true;
  if (const int64_t bad = find_fp8_nan(codes); bad >= 0) {
    fault(tensor, str_cat("element ", at_text(rows.begin + bad / k, bad % k), " is NaN"));
    good = false;
  }
  for (int64_t i = 0; i < down * across && good; ++i) {
    const float scale = load_float(scales.data(), source.scale_dtype, i);
    const int64_t block_row = i / across, block_column = i % across;
    const std::string where = at_text(first_block + block_row, block_column);
    if (!std::isfinite(scale) || scale < 0) {
      fault(scale_tensor,
            str_cat("scale ", where, " is ", python_float_repr(static_cast<double>(scale))));
      good = false;
    } else if (scale == 0) {
      const int64_t r1 = std::min(rows.size(), (block_row + 1) * kFp8Block);
      const int64_t c0 = block_column * kFp8Block, c1 = std::min(k, c0 + kFp8Block);
      for (int64_t r = block_row * kFp8Block; r < r1 && good; ++r)
        for (int64_t c = c0; c < c1 && good; ++c)
          good = (codes[static_cast<size_t>(r * k + c)] & std::byte{0x7F}) == std::byte{0};
      if (!good) fault(scale_tensor, str_cat("scale ", where, " is 0 over weights that are not"));
    }
  }
  if (!good) return {};
  sink({.format = source.format,
        .n = rows.size(),
        .k = k,
        .values = {codes.data(), DType::kF8E4M3, {1, rows.size(), k}},
        .scales = {scales.data(), source.scale_dtype, {1, down, across}}});
  return {};
}

// The file is k-major: word [r, n] holds inputs 8r … 8r+7 of output n, lowest nibble first. Read as
// bytes, that word is four bytes of our row n in their order, so unpacking is a transposition of
// 32-bit words.
Status LinearReader::read_int4(const LinearSource& source, RowRange rows, bool with_zeros,
                               RowBuffers& to, const RowSink& sink) {
  static_assert(std::endian::native == std::endian::little);
  const int64_t n = rows.size(), k = source.k, groups = k / kInt4Group;
  const int64_t scale_bytes = dtype_bytes(source.scale_dtype);
  TRY_ASSIGN(const std::span<std::byte> words, read_columns(*source.values, rows, raw_values_));
  TRY_ASSIGN(const std::span<std::byte> raw_scales,
             read_columns(*source.scales, rows, raw_scales_));
  bool good = check_int4_scales(source, rows, raw_scales);
  TRY_ASSIGN(const std::span<std::byte> values, to.values.take(n * k / 2));
  TRY_ASSIGN(const std::span<std::byte> scales, to.scales.take(n * groups * scale_bytes));
  transpose32(typed<uint32_t>(words), k / 8, n, typed<uint32_t>(values));
  if (scale_bytes == 2)
    transpose16(typed<uint16_t>(raw_scales), groups, n, typed<uint16_t>(scales));
  else
    transpose32(typed<uint32_t>(raw_scales), groups, n, typed<uint32_t>(scales));

  TRY_ASSIGN(const std::span<std::byte> zeros, to.zeros.take(n * groups));
  TRY_ASSIGN(const std::span<std::byte> packed,
             read_columns(*source.zeros, {rows.begin / 8, rows.end / 8}, raw_zeros_));
  good = unpack_zeros(source, rows, packed, typed<uint8_t>(zeros)) && good;
  if (source.group_index != nullptr && rows.begin == 0) {
    const StoredTensor& index = *source.group_index;
    TRY_ASSIGN(const std::span<std::byte> order,
               read_range(index.file, index.info.begin, index.info.bytes(), 4, raw_zeros_));
    good = check_group_index(source, order) && good;
  }
  if (!good) return {};
  WeightMatrix out{.format = source.format,
                   .n = n,
                   .k = k,
                   .values = {values.data(), DType::kU8, {1, n, k / 2}},
                   .scales = {scales.data(), source.scale_dtype, {1, n, groups}}};
  if (with_zeros) out.zeros = {zeros.data(), DType::kU8, {1, n, groups}};
  sink(out);
  return {};
}

// words [groups, n/8]: nibble j of word [g, c] belongs to output 8c+j. Symmetric modules have 8
// everywhere, in one of its two spellings, and the same one throughout the module.
bool LinearReader::unpack_zeros(const LinearSource& source, RowRange rows,
                                std::span<const std::byte> words, uint8_t* zeros) {
  constexpr uint32_t kMinusOneEight = 0x77777777u, kPlainEight = 0x88888888u;
  const int64_t columns = rows.size() / 8, groups = source.k / kInt4Group;
  const auto word_at = [&](int64_t i) {
    uint32_t word = 0;
    std::memcpy(&word, words.data() + i * 4, 4);
    return word;
  };
  uint32_t bias = source.zero_style == ZeroStyle::kMinusOne ? 1 : 0;
  if (!source.has_zeros) {
    const uint32_t first = word_at(0);
    const bool plain = first == kPlainEight;
    const bool known = plain || first == kMinusOneEight;
    if (known && source.zero_style != ZeroStyle::kEither &&
        plain != (source.zero_style == ZeroStyle::kPlain)) {
      fault(*source.zeros,
            plain ? "zero points are stored as 8, but the config says they are stored as z - 1: a "
                    "GPTQ v2 file with a v1 label?"
                  : "zero points are stored as 7, but the config says they are stored as they are: "
                    "a GPTQ v1 file with a v2 label?");
      return false;
    }
    for (int64_t i = 0; i < groups * columns; ++i) {
      if (known && word_at(i) == first) continue;
      fault(*source.zeros, str_cat("word ", at_text(i / columns, rows.begin / 8 + i % columns),
                                   " is not the zero point of symmetric weights, but the config "
                                   "says that they are symmetric"));
      return false;
    }
    bias = plain ? 0 : 1;
  }
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t c = 0; c < columns; ++c) {
      const uint32_t word = word_at(g * columns + c);
      for (int64_t j = 0; j < 8; ++j)
        zeros[(c * 8 + j) * groups + g] = static_cast<uint8_t>(((word >> (4 * j)) & 15u) + bias);
    }
  }
  return true;
}

bool LinearReader::check_group_index(const LinearSource& source, std::span<const std::byte> words) {
  for (int64_t i = 0; i < source.k; ++i) {
    int32_t group = 0;
    std::memcpy(&group, words.data() + i * 4, 4);
    if (group == i / kInt4Group) continue;
    fault(*source.group_index,
          str_cat("input ", i, " is in group ", group, ": activation order is not supported"));
    return false;
  }
  return true;
}

// Scales carry a sign. A zero is legal for a group of zeros only, which some exporters write.
bool LinearReader::check_int4_scales(const LinearSource& source, RowRange rows,
                                     std::span<const std::byte> scales) {
  const int64_t n = rows.size();
  if (const int64_t bad = find_nonfinite(scales, source.scale_dtype); bad >= 0) {
    fault(*source.scales,
          str_cat("scale ", at_text(bad / n, rows.begin + bad % n), " is not finite"));
    return false;
  }
  for (int64_t i = 0; i < n * source.k / kInt4Group; ++i) {
    if (load_float(scales.data(), source.scale_dtype, i) != 0) continue;
    findings_.warn(str_cat(checkpoint_.file_name(*source.scales), ": ", source.scales->info.name,
                           ": scale ", at_text(i / n, rows.begin + i % n), " is 0"));
    break;
  }
  return true;
}

Status LinearReader::read_floats(const StoredTensor& tensor, std::span<float> out) {
  const DType dtype = *tensor.info.dtype;
  TRY_ASSIGN(const std::span<std::byte> data,
             read_range(tensor.file, tensor.info.begin, tensor.info.bytes(), dtype_bytes(dtype),
                        raw_values_));
  if (const int64_t bad = find_nonfinite(data, dtype); bad >= 0) {
    fault(tensor, str_cat("element ", bad, " is not finite"));
    return {};
  }
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = load_float(data.data(), dtype, static_cast<int64_t>(i));
  return {};
}

}  // namespace pewter
