// Reads linear modules piece by piece and hands on canonical rows, checking the data on the way:
// non-finite weights and scales, FP8 NaNs, impossible scales, zero points that contradict the
// config, act-order indexes. A reader owns memory for what it unpacks and belongs to one thread.
#pragma once

#include <functional>

#include "checkpoint/linear_source.h"

namespace pewter {

struct RowRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// A module cut into pieces of at most kPieceBytes, each but the last a multiple of 128 rows: the
// granule that fp8 blocks and a backend's layouts share.
inline constexpr int64_t kPieceBytes = int64_t{32} << 20;
std::vector<RowRange> split_rows(const LinearSource& source);

// Receives rows as a canonical matrix of count 1.
using RowSink = std::function<void(const WeightMatrix& rows)>;

// Where host memory comes from, aligned for direct I/O. Error: kResourceExhausted.
using HostMemory = std::function<Result<Buffer>(int64_t bytes)>;

// Memory that grows to the largest request and is reused.
class Staging {
 public:
  explicit Staging(HostMemory memory = Buffer::host) : memory_(std::move(memory)) {}
  Result<std::span<std::byte>> take(int64_t bytes);

 private:
  HostMemory memory_;
  Buffer buffer_;
};

// What rows lie in when they are handed on.
struct RowBuffers {
  explicit RowBuffers(const HostMemory& memory) : values(memory), scales(memory), zeros(memory) {}
  Staging values, scales, zeros;
};

class LinearReader {
 public:
  // direct_io[f]: read large ranges of file f past the page cache.
  LinearReader(const Checkpoint& checkpoint, const std::vector<bool>& direct_io, Findings& findings)
      : checkpoint_(checkpoint), direct_io_(direct_io), findings_(findings) {}

  // Plain and fp8 rows are read right into `to`, int4 rows unpacked there; they stay until it is
  // used again. Rows with a fault in them are not given to the sink. with_zeros: write zero points
  // even where the module is symmetric, as a stack that has asymmetric members needs. The error is
  // one of reading the file.
  Status read(const LinearSource& source, RowRange rows, bool with_zeros, RowBuffers& to,
              const RowSink& sink);
  // A float tensor as f32 into out, which has its size.
  Status read_floats(const StoredTensor& tensor, std::span<float> out);

 private:
  Status read_plain(const LinearSource& source, RowRange rows, RowBuffers& to, const RowSink& sink);
  Status read_fp8(const LinearSource& source, RowRange rows, RowBuffers& to, const RowSink& sink);
  Status read_int4(const LinearSource& source, RowRange rows, bool with_zeros, RowBuffers& to,
                   const RowSink& sink);
  bool unpack_zeros(const LinearSource& source, RowRange rows, std::span<const std::byte> words,
                    uint8_t* zeros);
  bool check_group_index(const LinearSource& source, std::span<const std::byte> words);
  bool check_int4_scales(const LinearSource& source, RowRange rows,
                         std::span<const std::byte> scales);

  // Bytes [offset, offset + bytes) of a file, at an address good for elements of element_bytes.
  Result<std::span<std::byte>> read_range(int file, int64_t offset, int64_t bytes,
                                          int64_t element_bytes, Staging& staging);
  // Columns [columns.begin, columns.end) of a 2-D tensor, dense.
  Result<std::span<std::byte>> read_columns(const StoredTensor& tensor, RowRange columns,
                                            Staging& staging);
  void fault(const StoredTensor& tensor, std::string_view reason);

  const Checkpoint& checkpoint_;
  const std::vector<bool>& direct_io_;
  Findings& findings_;
  Staging raw_values_, raw_scales_, raw_zeros_;
};

// out[c, r] = in[r, c] for 32-bit (or 16-bit) elements.
void transpose32(const uint32_t* in, int64_t rows, int64_t columns, uint32_t* out);
void transpose16(const uint16_t* in, int64_t rows, int64_t columns, uint16_t* out);

}  // namespace pewter
