#include "checkpoint/safetensors_writer.h"

#include <fstream>

#include "base/json.h"

namespace pewter {

std::string safetensors_bytes(std::span<const TensorData> tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  size_t offset = 0;
  for (const TensorData& tensor : tensors) {
    header += ',';
    append_json_string(header, tensor.name);
    header += ":{\"dtype\":";
    append_json_string(header, tensor.dtype);
    header += ",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); ++i)
      header += str_cat(i > 0 ? "," : "", tensor.shape[i]);
    const size_t end = offset + tensor.bytes.size();
    header += str_cat("],\"data_offsets\":[", offset, ",", end, "]}");
    offset = end;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string bytes;
  bytes.reserve(8 + header.size() + offset);
  for (size_t i = 0; i < 8; ++i) bytes += static_cast<char>((header.size() >> (8 * i)) & 255u);
  bytes += header;
  for (const TensorData& tensor : tensors)
    bytes.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  return bytes;
}

Status write_file(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) return Error{ErrorCode::kInvalidArgument, path + ": cannot write"};
  return {};
}

Status write_safetensors(const std::string& path, std::span<const TensorData> tensors) {
  return write_file(path, safetensors_bytes(tensors));
}

}  // namespace pewter
