#include "checkpoint/checkpoint.h"

#include <simdjson.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "checkpoint/model_path.h"
#include "checkpoint/tensor_names.h"

namespace pewter {
namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

using IndexMap = std::unordered_map<std::string, std::string>;  // tensor name -> file name

bool escapes_directory(std::string_view file) {
  return file.empty() || file.find('/') != std::string_view::npos ||
         file.find('\\') != std::string_view::npos || file.find("..") != std::string_view::npos ||
         file.find('\0') != std::string_view::npos;
}

// Reads {"weight_map": {"tensor": "file", …}}. total_size is advisory and not looked at: tools that
// append tensors leave it as it was.
IndexMap parse_index(std::string text, const std::vector<std::string>& files, Findings& findings) {
  IndexMap map;
  simdjson::dom::parser parser;
  simdjson::dom::object root, weights;
  text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  const simdjson::error_code error = parser.parse(text).get(root);
  if (error != simdjson::SUCCESS) {
    findings.fault(kIndexName, "", str_cat("is not valid JSON: ", simdjson::error_message(error)));
    return map;
  }
  if (root.at_key("weight_map").get(weights) != simdjson::SUCCESS) {
    findings.fault(kIndexName, "", "has no object \"weight_map\"");
    return map;
  }
  if (weights.size() == 0) findings.fault(kIndexName, "weight_map", "is empty");
  std::map<std::string, int64_t> missing;  // file -> tensors the index puts in it
  for (const auto field : weights) {
    std::string_view file;
    if (field.value.get(file) != simdjson::SUCCESS || escapes_directory(file)) {
      findings.fault(kIndexName, field.key, "is mapped to something that is no file name");
    } else if (!map.emplace(field.key, file).second) {
      findings.fault(kIndexName, field.key, "is twice in the index");
    } else if (!std::ranges::binary_search(files, file)) {
      ++missing[std::string(file)];
    }
  }
  for (const auto& [file, count] : missing)
    findings.fault(kIndexName, file,
                   str_cat("the index puts ", count, count == 1 ? " tensor" : " tensors",
                           " in this file, which is not there"),
                   ErrorCode::kNotFound);
  return map;
}

}  // namespace

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &tensors_[static_cast<size_t>(at->second)];
}

Result<Checkpoint> Checkpoint::open(const std::string& path) {
  TRY_ASSIGN(const ModelPath place, resolve_model_path(path));
  Checkpoint checkpoint;
  checkpoint.directory_ = place.directory;
  const std::string config_path = place.directory + "/config.json";
  TRY_ASSIGN(const std::string config_text, read_file(config_path, int64_t{1} << 26));
  Result<Json> config = Json::parse(config_text);
  if (!config) return config.error().within(config_path);
  if (!config->is_object())
    return Error{ErrorCode::kCorruptData, config_path + ": is no JSON object"};
  checkpoint.config_ = std::move(config).value();

  Findings findings;
  IndexMap index;
  if (!place.single_file) {
    const Result<std::string> text =
        read_file(place.directory + "/" + kIndexName, SafetensorsFile::kMaxHeaderBytes);
    if (text)
      index = parse_index(*text, place.files, findings);
    else if (text.error().code != ErrorCode::kNotFound)
      return text.error();
  }
  for (const std::string& name : place.files) {
    TRY_ASSIGN(SafetensorsFile file, SafetensorsFile::open(place.directory + "/" + name, findings));
    checkpoint.files_.push_back(std::move(file));
  }
  // A model in one file needs no index: that file is its own.
  for (const SafetensorsFile& file : checkpoint.files_)
    if (index.empty() && file.name() == kSingleName)
      for (const TensorInfo& info : file.tensors()) index.emplace(info.name, kSingleName);
  checkpoint.collect_tensors(index, findings);
  if (findings.has_faults()) return findings.to_error(place.directory);
  checkpoint.warnings_ = findings.warnings();
  return checkpoint;
}

// The index decides for every name it lists. A name it lacks counts when it is the drafting
// layer's, whose file is often added later; anything else is of some other model and is left alone.
// An empty index lists everything.
void Checkpoint::collect_tensors(const IndexMap& index, Findings& findings) {
  std::unordered_set<std::string_view> found;  // names of the index that their file holds
  for (size_t f = 0; f < files_.size(); ++f) {
    const std::string& file = files_[f].name();
    int64_t ignored = 0;
    std::string example;
    for (const TensorInfo& info : files_[f].tensors()) {
      std::string name = canonical_name(info.name);
      const auto listed = index.find(info.name);
      if (listed != index.end()) {
        if (listed->second != file) {
          if (ignored++ == 0) example = info.name;
          continue;
        }
        found.insert(listed->first);
      } else if (!index.empty() && !name.starts_with("mtp.")) {
        if (ignored++ == 0) example = info.name;
        continue;
      }
      tensors_.push_back({.name = std::move(name),
                          .info = info,
                          .file = static_cast<int>(f),
                          .id = static_cast<int>(tensors_.size()),
                          .indexed = index.empty() || listed != index.end()});
    }
    if (ignored > 0)
      findings.warn(str_cat(file, ": ", ignored, ignored == 1 ? " tensor is" : " tensors are",
                            " not this file's in the index, such as ", example, ": ignored"));
  }
  for (const auto& [name, file] : index)
    if (!found.contains(name) &&
        std::ranges::any_of(files_, [&](const SafetensorsFile& f) { return f.name() == file; }))
      findings.fault(file, name, "is in the index, and not in this file", ErrorCode::kNotFound);

  by_name_.reserve(tensors_.size());
  for (const StoredTensor& tensor : tensors_) {
    const auto [at, fresh] = by_name_.emplace(tensor.name, tensor.id);
    if (fresh) continue;
    const StoredTensor& other = tensors_[static_cast<size_t>(at->second)];
    if (tensor.indexed != other.indexed) {  // two spellings, and the index has chosen
      if (tensor.indexed) at->second = tensor.id;
      continue;
    }
    findings.fault(
        file_name(tensor), tensor.info.name,
        other.info.name == tensor.info.name
            ? str_cat("is in ", file_name(other), " too")
            : str_cat("is the same parameter as ", other.info.name, " of ", file_name(other)));
  }
}

}  // namespace pewter
