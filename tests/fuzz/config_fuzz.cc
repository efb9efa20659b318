// A config.json from a stranger: the model's fields and the quantisation, whose regular expressions
// are the checkpoint's too.
#include "checkpoint/quant_config.h"
#include "model/qwen35/footprint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json = pewter::Json::parse({reinterpret_cast<const char*>(data), size});
  if (!json) return 0;
  if (const auto quant = pewter::QuantConfig::parse(*json); quant.has_value())
    for (const char* module : {"layers.0.mlp.experts.3.up_proj", "lm_head", "mtp.fc",
                               "layers.12.linear_attn.in_proj_qkv"})
      static_cast<void>(quant->module(module));
  const auto config = pewter::ModelConfig::parse(*json);
  if (!config) return 0;
  CHECK(static_cast<int64_t>(config->layer_kinds.size()) == config->layers, "layer kinds");
  CHECK(static_cast<int64_t>(config->rope_axis.size()) * 2 == config->rotary_dim, "rope axes");
  CHECK(config->rotary_dim <= config->head_dim, "rotary dimensions");
  // Signed overflow in the counting would be caught by the sanitizer.
  static_cast<void>(
      pewter::footprint(*config, config->mtp_layers > 0,
                        [](const pewter::MatrixParameter&) { return pewter::WeightSpec{}; }));
  return 0;
}
