// A way to spoil a synthetic checkpoint, and what the refusal must say. The rules are listed in
// load_reject_test.cc (structure) and load_reject_data_test.cc (formats and data).
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <ostream>

#include "model/qwen35/load.h"
#include "model/qwen35/testing/host_device.h"
#include "model/qwen35/testing/synthetic_checkpoint.h"

namespace pewter {

struct RejectRule {
  const char* name;
  std::function<void(SyntheticCheckpoint&)> spoil;
  std::string message;
};
inline void PrintTo(const RejectRule& rule, std::ostream* out) { *out << rule.name; }
inline constexpr auto kRejectRuleName = [](const auto& tested) {
  return std::string(tested.param.name);
};

class RejectRules : public testing::TestWithParam<RejectRule> {};

// Writes, opens and loads: the message of what stops it, or "loaded".
inline std::string load_error(const SyntheticCheckpoint& synthetic,
                              const LoadOptions& options = {}) {
  const TempDirectory directory;
  synthetic.write(directory);
  HostDevice device;
  const auto checkpoint = Checkpoint::open(directory.path());
  if (!checkpoint) return checkpoint.error().message;
  const auto config = ModelConfig::parse(checkpoint->config());
  if (!config) return config.error().message;
  const auto loaded = load_weights(*checkpoint, *config, device, options);
  return loaded ? "loaded" : loaded.error().message;
}

inline void poke(TensorData& tensor, size_t byte, std::initializer_list<unsigned> bytes) {
  for (const unsigned b : bytes) tensor.bytes[byte++] = static_cast<std::byte>(b);
}

// One int4 module in an AutoRound file: kInt4Module, [64, 128].
inline constexpr const char* kInt4Module = "layers.1.self_attn.k_proj";
inline void make_int4(SyntheticCheckpoint& s, const Int4Packing& packing = {}) {
  s.set_quantization(auto_round_config());
  s.pack_int4(kInt4Module, packing);
}
inline std::string int4_part(const char* suffix) { return str_cat(kInt4Module, ".", suffix); }

// One fp8 module in an FP8 file: [256, 128], scales [2, 1].
inline void make_fp8(SyntheticCheckpoint& s) {
  s.set_quantization(fp8_config());
  s.pack_fp8("layers.0.linear_attn.in_proj_qkv");
}
inline TensorData& fp8_tensor(SyntheticCheckpoint& s, const char* suffix) {
  return s.tensor(str_cat("layers.0.linear_attn.in_proj_qkv.", suffix));
}

}  // namespace pewter
