// Writes safetensors files: converters and tests make them here.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace pewter {

struct TensorData {
  std::string name;
  std::string dtype;  // "BF16", …
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

// The file's bytes: tensors in the order given, the header padded so that data begins at a multiple
// of 8. Names and types are written as they are; nothing is checked.
std::string safetensors_bytes(std::span<const TensorData> tensors);

Status write_file(const std::string& path, std::string_view bytes);
Status write_safetensors(const std::string& path, std::span<const TensorData> tensors);

}  // namespace pewter
