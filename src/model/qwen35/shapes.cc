#include "model/qwen35/shapes.h"

#include <array>

namespace pewter {
namespace {

// What differs between the sizes of the family.
struct Shape {
  std::string_view name;
  int64_t hidden, layers, query_heads, kv_heads, key_heads, value_heads;
  int64_t intermediate;                  // dense
  int64_t experts, top_k, expert_width;  // mixture of experts; the shared expert is as wide
  int64_t vocabulary;
  bool tied;
};

constexpr std::array kShapes = {
    Shape{"third", 1024, 16, 8, 2, 8, 16, 0, 64, 8, 256, 32768, false},
    Shape{"qwen3.5-0.8b", 1024, 24, 8, 2, 16, 16, 3584, 0, 0, 0, 248320, true},
    Shape{"qwen3.5-27b", 5120, 64, 24, 4, 16, 48, 17408, 0, 0, 0, 248320, false},
    Shape{"qwen3.5-35b", 2048, 40, 16, 2, 16, 32, 0, 256, 8, 512, 248320, false},
    Shape{"qwen3.5-122b", 3072, 48, 32, 2, 16, 64, 0, 256, 8, 1024, 248320, false},
};

// As config.json would say it, so that the reader of real configs checks and completes it.
Json config_json(const Shape& s) {
  Json::Object config = {
      {"model_type", s.experts > 0 ? "qwen3_5_moe" : "qwen3_5"},
      {"hidden_size", s.hidden},
      {"num_hidden_layers", s.layers},
      {"num_attention_heads", s.query_heads},
      {"num_key_value_heads", s.kv_heads},
      {"head_dim", 256},
      {"linear_num_key_heads", s.key_heads},
      {"linear_num_value_heads", s.value_heads},
      {"linear_key_head_dim", 128},
      {"linear_value_head_dim", 128},
      {"linear_conv_kernel_dim", 4},
      {"full_attention_interval", 4},
      {"rms_norm_eps", 1e-6},
      {"vocab_size", s.vocabulary},
      {"max_position_embeddings", 262144},
      {"tie_word_embeddings", s.tied},
      {"mtp_num_hidden_layers", 1},
      {"rope_parameters", Json::Object{{"rope_theta", 1e7},
                                       {"mrope_section", Json::Array{11, 11, 10}},
                                       {"mrope_interleaved", true}}}};
  if (s.experts > 0) {
    config.emplace_back("num_experts", s.experts);
    config.emplace_back("num_experts_per_tok", s.top_k);
    config.emplace_back("moe_intermediate_size", s.expert_width);
    config.emplace_back("shared_expert_intermediate_size", s.expert_width);
  } else {
    config.emplace_back("intermediate_size", s.intermediate);
  }
  return config;
}

constexpr WeightSpec kBF16{.format = WeightFormat::kBF16};
constexpr WeightSpec kFp8{.format = WeightFormat::kFp8Block128, .scale_dtype = DType::kBF16};
constexpr WeightSpec kInt8{.format = WeightFormat::kInt8Row};
constexpr WeightSpec kInt4{.format = WeightFormat::kInt4Group128, .scale_dtype = DType::kF16};

struct NamedFormat {
  std::string_view name;
  WeightSpec spec;
};
constexpr std::array kFormats = {NamedFormat{"bf16", kBF16}, NamedFormat{"int8", kInt8},
                                 NamedFormat{"fp8", kFp8}, NamedFormat{"int4", kInt4}};

Error unknown(std::string_view what, std::string_view name, std::string_view known) {
  return Error{ErrorCode::kInvalidArgument, str_cat(what, ": \"", name, "\" is none of ", known)};
}

}  // namespace

Result<ModelConfig> shape_config(std::string_view name) {
  std::string known;
  for (const Shape& shape : kShapes) {
    if (shape.name == name) return ModelConfig::parse(config_json(shape));
    known += str_cat(known.empty() ? "" : ", ", shape.name);
  }
  return unknown("shape", name, known);
}

Result<WeightSpec> weight_spec_named(std::string_view what, std::string_view name,
                                     std::string_view known) {
  for (const NamedFormat& format : kFormats)
    if (format.name == name && known.find(name) != std::string_view::npos) return format.spec;
  return unknown(what, name, known);
}

Result<FormatChoice> shape_formats(std::string_view name, const ShapeFormats& formats) {
  const bool is_hybrid = name == "hybrid";
  const auto linear = weight_spec_named("format", is_hybrid ? "int4" : name, "bf16, fp8, int4");
  if (!linear) return unknown("format", name, "bf16, fp8, int4, hybrid");
  TRY_ASSIGN(const WeightSpec head,
             weight_spec_named("head format", formats.head, "bf16, int8, fp8, int4"));
  TRY_ASSIGN(const WeightSpec mtp, weight_spec_named("mtp format", formats.mtp, kDraftFormats));
  const WeightSpec shared = is_hybrid ? kFp8 : *linear;
  return FormatChoice([linear = *linear, shared, head, mtp](const MatrixParameter& p) {
    if (p.float_only || p.component == Component::kDeltaGates || p.module == "mtp.fc") return kBF16;
    if (p.component == Component::kHead) return head;
    if (p.component == Component::kMtp) return mtp;
    return p.component == Component::kSharedExperts ? shared : linear;
  });
}

}  // namespace pewter
