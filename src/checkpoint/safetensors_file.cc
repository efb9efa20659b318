#include "checkpoint/safetensors_file.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <unordered_set>

namespace pewter {
namespace {

std::optional<DType> parse_dtype(std::string_view text) {
  for (int i = 0; i <= static_cast<int>(DType::kF64); ++i)
    if (dtype_name(static_cast<DType>(i)) == text) return static_cast<DType>(i);
  return std::nullopt;
}

// shape's element count times element_bytes, or nothing when it overflows.
std::optional<int64_t> checked_bytes(const std::vector<int64_t>& shape, int64_t element_bytes) {
  int64_t product = element_bytes;
  for (const int64_t extent : shape)
    if (__builtin_mul_overflow(product, extent, &product)) return std::nullopt;
  return product;
}

// Reads the three fields of an entry; the returned text says what is wrong, empty when nothing is.
std::string read_entry(simdjson::dom::element value, int64_t data_bytes, TensorInfo& info) {
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) return "its header entry is no object";
  bool seen_dtype = false, seen_shape = false, seen_offsets = false;
  for (const auto field : object) {
    if (field.key == "dtype") {
      std::string_view text;
      if (std::exchange(seen_dtype, true)) return "duplicate key \"dtype\"";
      if (field.value.get(text) != simdjson::SUCCESS) return "dtype is no text";
      info.dtype_text = text;
      info.dtype = parse_dtype(text);
    } else if (field.key == "shape") {
      simdjson::dom::array array;
      if (std::exchange(seen_shape, true)) return "duplicate key \"shape\"";
      if (field.value.get(array) != simdjson::SUCCESS) return "shape is no list";
      for (const auto item : array) {
        int64_t extent = 0;
        if (item.get(extent) != simdjson::SUCCESS || extent < 0)
          return "shape has an entry that is no size";
        info.shape.push_back(extent);
      }
    } else if (field.key == "data_offsets") {
      simdjson::dom::array array;
      if (std::exchange(seen_offsets, true)) return "duplicate key \"data_offsets\"";
      if (field.value.get(array) != simdjson::SUCCESS || array.size() != 2 ||
          array.at(0).get(info.begin) != simdjson::SUCCESS ||
          array.at(1).get(info.end) != simdjson::SUCCESS)
        return "data_offsets is no pair of integers";
    } else {
      return str_cat("unknown key \"", field.key, "\" in its header entry");
    }
  }
  if (!seen_dtype || !seen_shape || !seen_offsets)
    return "its header entry lacks dtype, shape or data_offsets";
  if (info.begin < 0 || info.begin > info.end)
    return str_cat("data_offsets [", info.begin, ", ", info.end, "] are no range");
  if (info.end > data_bytes)
    return str_cat("data_offsets [", info.begin, ", ", info.end, "] reach beyond the file's ",
                   data_bytes, " data bytes: truncated file?");
  const std::optional<int64_t> bytes =
      checked_bytes(info.shape, info.dtype ? dtype_bytes(*info.dtype) : 1);
  if (!bytes) return str_cat("shape ", shape_text(info.shape), " overflows");
  if (info.dtype && *bytes != info.bytes())
    return str_cat(info.bytes(), " bytes, but ", info.dtype_text, " ", shape_text(info.shape),
                   " takes ", *bytes);
  return {};
}

void check_metadata(simdjson::dom::element value, std::string_view file, Findings& findings) {
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS)
    return findings.fault(file, "__metadata__", "is no object");
  for (const auto field : object)
    if (!field.value.is_string())
      findings.fault(file, "__metadata__", str_cat("\"", field.key, "\" is no text"));
}

// Tensors must tile the data exactly: no byte belongs to two, none to nobody.
void check_coverage(const std::vector<TensorInfo>& tensors, int64_t data_begin, int64_t data_end,
                    std::string_view file, Findings& findings) {
  std::vector<const TensorInfo*> order;
  for (const TensorInfo& info : tensors)
    if (info.bytes() > 0) order.push_back(&info);
  std::ranges::sort(order, {}, [](const TensorInfo* info) { return info->begin; });
  int64_t covered = data_begin;
  const TensorInfo* last = nullptr;
  for (const TensorInfo* info : order) {
    if (info->begin < covered)
      findings.fault(file, info->name, str_cat("overlaps ", last->name));
    else if (info->begin > covered)
      findings.fault(file, info->name,
                     str_cat(info->begin - covered, " bytes before it belong to no tensor"));
    if (info->end > covered) {
      covered = info->end;
      last = info;
    }
  }
  if (covered < data_end)
    findings.fault(file, "",
                   str_cat("the last ", data_end - covered, " bytes belong to no tensor"));
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += str_cat(i > 0 ? ", " : "", shape[i]);
  return text + "]";
}

std::vector<TensorInfo> parse_safetensors_header(std::string_view header, int64_t data_begin,
                                                 int64_t data_end, std::string_view file,
                                                 Findings& findings) {
  std::vector<TensorInfo> tensors;
  if (header.empty() || header[0] != '{') {
    findings.fault(file, "", "header does not begin with '{'");
    return tensors;
  }
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  const simdjson::error_code error =
      parser.parse(header.data(), header.size(), /*realloc_if_needed=*/true).get(root);
  if (error != simdjson::SUCCESS) {
    findings.fault(file, "", str_cat("header is not valid JSON: ", simdjson::error_message(error)));
    return tensors;
  }
  std::unordered_set<std::string_view> names;
  bool sound = true;
  for (const auto field : root) {
    if (!names.insert(field.key).second) {
      findings.fault(file, field.key, "is twice in the header");
      sound = false;
      continue;
    }
    if (field.key == "__metadata__") {
      check_metadata(field.value, file, findings);
      continue;
    }
    TensorInfo info;
    info.name = field.key;
    const std::string wrong = read_entry(field.value, data_end - data_begin, info);
    if (!wrong.empty()) {
      findings.fault(file, info.name, wrong);
      sound = false;
      continue;
    }
    info.begin += data_begin;
    info.end += data_begin;
    tensors.push_back(std::move(info));
  }
  // With an entry missing, holes would be reported that are not the file's.
  if (sound) check_coverage(tensors, data_begin, data_end, file, findings);
  return tensors;
}

SafetensorsFile::SafetensorsFile(File file)
    : file_(std::move(file)), name_(file_.path().substr(file_.path().rfind('/') + 1)) {}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path, Findings& findings) {
  TRY_ASSIGN(File file, File::open(path));
  SafetensorsFile result(std::move(file));
  const int64_t size = result.file_.size_bytes();
  std::array<std::byte, 8> prefix{};
  if (size < 8) {
    findings.fault(result.name_, "", str_cat(size, " bytes are no safetensors file"));
    return result;
  }
  TRY(result.file_.read_at(0, prefix));
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < 8; ++i) header_bytes |= std::to_integer<uint64_t>(prefix[i]) << (8 * i);
  if (header_bytes < 2 || header_bytes > static_cast<uint64_t>(kMaxHeaderBytes)) {
    findings.fault(result.name_, "",
                   str_cat("header length ", header_bytes, " is not in 2 … ", kMaxHeaderBytes));
    return result;
  }
  const auto n = static_cast<int64_t>(header_bytes);
  if (8 + n > size) {
    findings.fault(result.name_, "",
                   str_cat("header of ", n, " bytes in a file of ", size, ": truncated file?"));
    return result;
  }
  std::string header(header_bytes, '\0');
  header.reserve(header.size() + simdjson::SIMDJSON_PADDING);  // lets the parser read in place
  TRY(result.file_.read_at(8, std::as_writable_bytes(std::span(header))));
  result.tensors_ = parse_safetensors_header(header, 8 + n, size, result.name_, findings);
  return result;
}

}  // namespace pewter
