// A tiny Qwen3.5 checkpoint made in memory, to be changed by a test in one place and written out:
// every module as plain floats first, then packed as the test asks.
#pragma once

#include <map>

#include "checkpoint/quant_config.h"
#include "checkpoint/testing/temp_directory.h"
#include "model/qwen35/parameters.h"

namespace pewter {

struct Int4Packing {
  ZeroStyle zeros = ZeroStyle::kMinusOne;
  bool symmetric = true;
  DType scale_dtype = DType::kF16;
  bool group_index = false;
};

class SyntheticCheckpoint {
 public:
  // Two layers, one of each kind; hidden 128, 4 experts, the MTP layer; BF16, experts one by one.
  explicit SyntheticCheckpoint(bool moe = true);

  Json config;                                       // of config.json
  std::map<std::string, TensorData> tensors;         // by the file's name
  std::map<std::string, WeightMatrix> expected;      // by canonical module: what must be loaded
  std::map<std::string, std::vector<float>> floats;  // by canonical tensor name, of vectors

  static std::string file_name(const std::string& canonical);  // with the official prefix
  TensorData& tensor(const std::string& canonical) { return tensors.at(file_name(canonical)); }
  void erase(const std::string& canonical) { tensors.erase(file_name(canonical)); }
  void add(const std::string& canonical, const std::string& dtype, std::vector<int64_t> shape);
  // A module of random values, in BF16 until it is packed.
  void add_module(const std::string& module, int64_t n, int64_t k);

  // Packs a module anew from its floats.
  void pack_int4(const std::string& module, const Int4Packing& packing = {});
  void pack_fp8(const std::string& module, DType scale_dtype = DType::kBF16);
  void pack_floats(const std::string& module, DType dtype);
  // All linears that real INT4 or FP8 files quantise.
  std::vector<std::string> quantisable_modules() const;
  void set_quantization(const std::string& json);
  // Experts of every layer as experts.gate_up_proj and experts.down_proj.
  void fuse_experts();
  void rename(const std::string& from_prefix, const std::string& to_prefix);

  // One model.safetensors.
  void write(const TempDirectory& directory) const;

 private:
  void erase_module(const std::string& module);
  std::map<std::string, std::vector<float>> values_;  // by canonical module
};

// The quantization_config of the AutoRound files that pack_int4 makes.
std::string auto_round_config(ZeroStyle zeros = ZeroStyle::kMinusOne, bool symmetric = true);
std::string fp8_config();

}  // namespace pewter
