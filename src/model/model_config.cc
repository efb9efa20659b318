#include "model/model_config.h"

#include "model/config_fields.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace pewter {
namespace {

// Far above any model, and low enough that the bytes of all its weights fit 64 bits.
constexpr int64_t kMaxWidth = int64_t{1} << 20, kMaxExpertWidth = int64_t{1} << 16,
                  kMaxSmall = int64_t{1} << 12;

using namespace config_fields;  // NOLINT

Status parse_model_type(const Json& config, const Json& text, ModelConfig& out) {
  constexpr std::array<std::string_view, 4> kTypes = {"qwen3_5_moe", "qwen3_5", "qwen3_5_moe_text",
                                                      "qwen3_5_text"};
  const Json* type = get(config, "model_type");
  if (type == nullptr) type = get(text, "model_type");
  if (type == nullptr || !type->is_string()) return wrong("model_type", "is missing");
  if (std::ranges::find(kTypes, type->as_string()) == kTypes.end())
    return unsupported("model_type", str_cat("\"", type->as_string(),
                                             "\" is not supported; qwen3_5_moe and qwen3_5 are"));
  out.model_type = type->as_string();
  return {};
}

Status parse_layer_kinds(const Json& text, ModelConfig& out) {
  if (const Json* types = get(text, "layer_types")) {
    if (!types->is_array() || static_cast<int64_t>(types->as_array().size()) != out.layers)
      return wrong("layer_types",
                   str_cat("is no list of num_hidden_layers (", out.layers, ") entries"));
    for (const Json& type : types->as_array()) {
      if (type == Json("linear_attention"))
        out.layer_kinds.push_back(LayerKind::kDelta);
      else if (type == Json("full_attention"))
        out.layer_kinds.push_back(LayerKind::kAttention);
      else
        return unsupported("layer_types", str_cat("has ", type.dump(),
                                                  ", which is neither linear_attention nor "
                                                  "full_attention"));
    }
    return {};
  }
  TRY_ASSIGN(const int64_t interval, size_of(text, "full_attention_interval", kMaxSmall));
  for (int64_t i = 0; i < out.layers; ++i)
    out.layer_kinds.push_back((i + 1) % interval == 0 ? LayerKind::kAttention : LayerKind::kDelta);
  return {};
}

// Which of the three positions turns each frequency. Interleaved sections deal frequencies out in
// turn (t h w t h w …) until h and w have theirs; plain ones are blocks.
Status parse_rope_axes(const Json& rope, ModelConfig& out) {
  const int64_t half = out.rotary_dim / 2;
  out.rope_axis.assign(static_cast<size_t>(half), 0);
  const Json* section = get(rope, "mrope_section");
  if (section == nullptr) return {};
  std::array<int64_t, 3> size{};
  bool sound = section->is_array() && section->as_array().size() == size.size();
  for (size_t i = 0; sound && i < size.size(); ++i) {
    const Json& item = section->as_array()[i];
    sound = item.is_integer() && item.as_integer() >= 0 && item.as_integer() <= half;
    if (sound) size[i] = item.as_integer();
  }
  if (!sound || size[0] + size[1] + size[2] != half)
    return wrong("mrope_section", str_cat("is ", section->dump(), ", want three sizes that add to ",
                                          half, ", half of the rotary dimensions"));
  const Json* flag = get(rope, "mrope_interleaved");
  if (flag != nullptr && !flag->is_bool())
    return wrong("mrope_interleaved", "is neither true nor false");
  const bool interleaved = flag != nullptr && flag->as_bool();
  for (int64_t i = 0; i < half; ++i) {
    int32_t& axis = out.rope_axis[static_cast<size_t>(i)];
    if (interleaved)
      axis = i % 3 == 1 && i < 3 * size[1] ? 1 : i % 3 == 2 && i < 3 * size[2] ? 2 : 0;
    else
      axis = i < size[0] ? 0 : i < size[0] + size[1] ? 1 : 2;
  }
  return {};
}

Status parse_rope(const Json& text, ModelConfig& out) {
  const Json none{Json::Object{}};
  const Json* rope = get(text, "rope_parameters");
  if (rope == nullptr) rope = get(text, "rope_scaling");  // older files
  if (rope == nullptr) rope = &none;
  if (!rope->is_object()) return wrong("rope_parameters", "is no object");
  TRY(require_text(*rope, "rope_type", {"default", "mrope"}));
  if (get(*rope, "rope_type") == nullptr) TRY(require_text(*rope, "type", {"default", "mrope"}));
  const auto holder = [&](std::string_view key) -> const Json& {
    return get(*rope, key) != nullptr ? *rope : text;
  };
  TRY_ASSIGN(out.rope_theta, number_of(holder("rope_theta"), "rope_theta"));
  double factor = 0.25;
  if (const Json& place = holder("partial_rotary_factor"); get(place, "partial_rotary_factor")) {
    TRY_ASSIGN(factor, number_of(place, "partial_rotary_factor"));
  }
  if (factor > 1) return wrong("partial_rotary_factor", "is above 1");
  out.rotary_dim = static_cast<int64_t>(factor * static_cast<double>(out.head_dim));
  if (out.rotary_dim < 2 || out.rotary_dim % 2 != 0)
    return wrong("partial_rotary_factor", str_cat("makes ", out.rotary_dim, " of head_dim ",
                                                  out.head_dim, " rotate, want an even number"));
  return parse_rope_axes(*rope, out);
}

Status parse_mixers(const Json& text, ModelConfig& out) {
  TRY_ASSIGN(out.query_heads, size_of(text, "num_attention_heads", kMaxSmall));
  TRY_ASSIGN(out.kv_heads, size_of(text, "num_key_value_heads", kMaxSmall));
  TRY_ASSIGN(out.head_dim, size_of(text, "head_dim", kMaxSmall));
  if (out.query_heads % out.kv_heads != 0)
    return wrong(
        "num_attention_heads",
        str_cat("is ", out.query_heads, ", no multiple of num_key_value_heads ", out.kv_heads));
  TRY_ASSIGN(out.key_heads, size_of(text, "linear_num_key_heads", kMaxSmall));
  TRY_ASSIGN(out.value_heads, size_of(text, "linear_num_value_heads", kMaxSmall));
  TRY_ASSIGN(out.key_dim, size_of(text, "linear_key_head_dim", kMaxSmall));
  TRY_ASSIGN(out.value_dim, size_of(text, "linear_value_head_dim", kMaxSmall));
  if (out.value_heads % out.key_heads != 0)
    return wrong(
        "linear_num_value_heads",
        str_cat("is ", out.value_heads, ", no multiple of linear_num_key_heads ", out.key_heads));
  TRY_ASSIGN(const int64_t taps, size_of(text, "linear_conv_kernel_dim", kMaxSmall));
  if (taps != 4)
    return unsupported("linear_conv_kernel_dim", str_cat("is ", taps, ": only 4 is supported"));
  TRY(require_text(text, "hidden_act", {"silu", "swish"}));
  TRY(require_text(text, "output_gate_type", {"silu", "swish"}));
  TRY(require_bool(text, "attn_output_gate", true));
  return require_bool(text, "attention_bias", false);
}

Status parse_feed_forward(const Json& text, ModelConfig& out) {
  TRY_ASSIGN(out.experts, count_of(text, "num_experts", kMaxSmall));
  if (!out.is_moe()) {
    if (out.model_type.find("moe") != std::string::npos)
      return wrong("num_experts", "is missing, and model_type is " + out.model_type);
    TRY_ASSIGN(out.intermediate_size, size_of(text, "intermediate_size", kMaxWidth));
    return {};
  }
  TRY_ASSIGN(out.experts_per_token, size_of(text, "num_experts_per_tok", kMaxSmall));
  if (out.experts_per_token > out.experts)
    return wrong("num_experts_per_tok",
                 str_cat("is ", out.experts_per_token, " of ", out.experts, " experts"));
  TRY_ASSIGN(out.expert_width, size_of(text, "moe_intermediate_size", kMaxExpertWidth));
  TRY_ASSIGN(out.shared_width, size_of(text, "shared_expert_intermediate_size", kMaxWidth));
  const Json* dense = get(text, "mlp_only_layers");
  if (dense != nullptr && !(dense->is_array() && dense->as_array().empty()))
    return unsupported("mlp_only_layers",
                       "is not empty: dense layers in a MoE model are not "
                       "supported");
  return require_bool(text, "norm_topk_prob", true);
}

Result<int32_t> token_id(const Json& value, std::string_view key, int64_t vocab) {
  if (!value.is_integer() || value.as_integer() < 0 || value.as_integer() >= vocab)
    return wrong(key, str_cat("is ", value.dump(), ", no token of ", vocab));
  return static_cast<int32_t>(value.as_integer());
}

Status parse_tokens(const Json& config, const Json& text, ModelConfig& out) {
  const Json* eos = get(config, "eos_token_id");
  if (eos == nullptr) eos = get(text, "eos_token_id");
  if (eos != nullptr) {
    const Json::Array ids = eos->is_array() ? eos->as_array() : Json::Array{*eos};
    for (const Json& id : ids) {
      TRY_ASSIGN(const int32_t token, token_id(id, "eos_token_id", out.vocab_size));
      out.eos_token_ids.push_back(token);
    }
  }
  const std::array<std::pair<const char*, int32_t*>, 4> marks = {
      {{"image_token_id", &out.image_token_id},
       {"video_token_id", &out.video_token_id},
       {"vision_start_token_id", &out.vision_start_token_id},
       {"vision_end_token_id", &out.vision_end_token_id}}};
  for (const auto& [key, to] : marks) {
    const Json* id = get(config, key);
    if (id == nullptr) continue;
    TRY_ASSIGN(*to, token_id(*id, key, out.vocab_size));
  }
  return {};
}

}  // namespace

Result<ModelConfig> ModelConfig::parse(const Json& config) {
  if (!config.is_object()) return wrong("the document", "is no object");
  const Json* nested = get(config, "text_config");
  if (nested != nullptr && !nested->is_object()) return wrong("text_config", "is no object");
  const Json& text = nested != nullptr ? *nested : config;  // text-only exports are flat
  ModelConfig out;
  TRY(parse_model_type(config, text, out));
  TRY_ASSIGN(out.hidden_size, size_of(text, "hidden_size", kMaxWidth));
  TRY_ASSIGN(out.layers, size_of(text, "num_hidden_layers", 1024));
  TRY_ASSIGN(out.vocab_size, size_of(text, "vocab_size", int64_t{1} << 24));
  TRY_ASSIGN(out.max_positions, size_of(text, "max_position_embeddings", int64_t{1} << 30));
  TRY_ASSIGN(const double epsilon, number_of(text, "rms_norm_eps"));
  out.norm_epsilon = static_cast<float>(epsilon);
  const Json* tied = get(config, "tie_word_embeddings");
  if (tied == nullptr) tied = get(text, "tie_word_embeddings");
  if (tied != nullptr && !tied->is_bool())
    return wrong("tie_word_embeddings", "is neither true nor false");
  out.tied_embeddings = tied != nullptr && tied->as_bool();

  TRY(parse_layer_kinds(text, out));
  TRY(parse_mixers(text, out));
  TRY(parse_rope(text, out));
  TRY(parse_feed_forward(text, out));
  TRY_ASSIGN(out.mtp_layers, count_of(text, "mtp_num_hidden_layers", kMaxSmall));
  if (out.mtp_layers > 1)
    return unsupported("mtp_num_hidden_layers",
                       str_cat("is ", out.mtp_layers, ": at most 1 is supported"));
  if (out.mtp_layers > 0) TRY(require_bool(text, "mtp_use_dedicated_embeddings", false));
  TRY(parse_tokens(config, text, out));
  return out;
}

}  // namespace pewter
