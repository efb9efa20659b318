// One safetensors file: its header, parsed and checked, and the open file behind it.
//
//   bytes 0…7       n, unsigned little-endian
//   bytes 8…7+n     JSON: {"name": {"dtype": D, "shape": […], "data_offsets": [begin, end]}, …}
//   from 8+n        the data; offsets count from here; row-major, little-endian, no padding
//
// Nothing is promised about alignment: copy before typed access.
#pragma once

#include <optional>
#include <vector>

#include "base/file.h"
#include "checkpoint/findings.h"
#include "tensor/dtype.h"

namespace pewter {

struct TensorInfo {
  std::string name;  // as the file spells it
  // Empty for a type this engine does not know. That is an error only for a tensor it needs.
  std::optional<DType> dtype;
  std::string dtype_text;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes of the file

  int64_t bytes() const { return end - begin; }
};

// "[3, 4]"
std::string shape_text(const std::vector<int64_t>& shape);

// Parses the header text of a file whose data begins at byte data_begin and ends at data_end.
// Every violation is a fault under the file's name: JSON that is none, duplicate keys, metadata
// that is no text, impossible shapes and offsets, sizes that disagree with shape and type,
// overlaps, holes and trailing bytes. Returns the entries that are sound in themselves.
std::vector<TensorInfo> parse_safetensors_header(std::string_view header, int64_t data_begin,
                                                 int64_t data_end, std::string_view file,
                                                 Findings& findings);

class SafetensorsFile {
 public:
  static constexpr int64_t kMaxHeaderBytes = 100'000'000;

  // An error when the file cannot be read; what its header has wrong goes to findings.
  static Result<SafetensorsFile> open(const std::string& path, Findings& findings);

  const File& file() const { return file_; }
  const std::string& path() const { return file_.path(); }
  // The last part of the path: what messages call this file.
  const std::string& name() const { return name_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

 private:
  explicit SafetensorsFile(File file);
  File file_;
  std::string name_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace pewter
