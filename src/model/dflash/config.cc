#include "model/dflash/config.h"

#include <array>

#include "backend/batch.h"
#include "model/config_fields.h"

namespace pewter {
namespace {

using namespace config_fields;  // NOLINT

constexpr int64_t kMaxWidth = int64_t{1} << 20, kMaxSmall = int64_t{1} << 12;

// dflash_config, where some of the keys may stand.
class Nested {
 public:
  explicit Nested(const Json& config) : config_(config) {
    const Json* nested = get(config, "dflash_config");
    if (nested != nullptr) nested_ = *nested;
  }
  // The object that has the key: dflash_config, or else the whole.
  const Json& holder(std::string_view key) const {
    return get(nested_, key) != nullptr ? nested_ : config_;
  }
  const Json* find(std::string_view key) const { return get(holder(key), key); }

  // What is not known might change every number.
  Status check_keys() const {
    if (!nested_.is_object()) return wrong("dflash_config", "is no object");
    constexpr std::array<std::string_view, 12> kKnown = {"block_size",
                                                         "mask_token_id",
                                                         "target_layer_ids",
                                                         "use_aux_hidden_state",
                                                         "causal",
                                                         "use_swa",
                                                         "swa_window_size",
                                                         "attention_sink_bias",
                                                         "input_embedding_scale",
                                                         "output_multiplier",
                                                         "final_logit_softcapping",
                                                         "is_causal"};
    for (const auto& [key, value] : nested_.as_object())
      if (std::ranges::find(kKnown, key) == kKnown.end())
        return unsupported("dflash_config." + key, "is no key that is known here");
    TRY(require_bool(nested_, "use_aux_hidden_state", true));
    TRY(require_bool(nested_, "attention_sink_bias", false));
    TRY(require_one("input_embedding_scale"));
    TRY(require_one("output_multiplier"));
    if (get(nested_, "final_logit_softcapping") != nullptr)
      return unsupported("dflash_config.final_logit_softcapping", "is not supported");
    return {};
  }

 private:
  Status require_one(std::string_view key) const {
    const Json* value = get(nested_, key);
    if (value == nullptr || (value->is_number() && value->as_double() == 1.0)) return {};
    return unsupported(str_cat("dflash_config.", key), "is not 1: that is not supported");
  }

  const Json& config_;
  Json nested_{Json::Object{}};
};

Status parse_architecture(const Json& config) {
  const Json* names = get(config, "architectures");
  if (names == nullptr || !names->is_array()) return wrong("architectures", "is missing");
  std::string listed;
  for (const Json& name : names->as_array()) {
    if (!name.is_string()) return wrong("architectures", "holds something that is no text");
    if (name.as_string() == "DFlashDraftModel") return {};
    listed += (listed.empty() ? "" : ", ") + name.as_string();
  }
  return unsupported("architectures", str_cat("is ", listed.empty() ? "empty" : listed,
                                              ": a drafter is a DFlashDraftModel"));
}

Status parse_taps(const Nested& nested, DflashConfig& out) {
  const Json* ids = nested.find("target_layer_ids");
  if (ids == nullptr || !ids->is_array() || ids->as_array().empty())
    return wrong("dflash_config.target_layer_ids", "is missing or no list of layers");
  for (const Json& id : ids->as_array()) {
    if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() >= kMaxSmall)
      return wrong("dflash_config.target_layer_ids", str_cat("holds ", id.dump()));
    out.taps.push_back(id.as_integer());
  }
  return {};
}

Status parse_rope(const Json& config, DflashConfig& out) {
  const Json* rope = get(config, "rope_parameters");
  if (rope == nullptr) rope = get(config, "rope_scaling");
  const Json none{Json::Object{}};
  if (rope == nullptr) rope = &none;
  if (!rope->is_object()) return wrong("rope_parameters", "is no object");
  TRY(require_text(*rope, "rope_type", {"default"}));
  TRY(require_text(*rope, "type", {"default"}));
  const Json& holder = get(*rope, "rope_theta") != nullptr ? *rope : config;
  TRY_ASSIGN(out.rope_theta, number_of(holder, "rope_theta"));
  return {};
}

Result<bool> flag_of(const Json* value, std::string_view key, bool otherwise) {
  if (value == nullptr) return otherwise;
  if (!value->is_bool()) return wrong(key, str_cat("is ", value->dump(), ", want true or false"));
  return value->as_bool();
}

// An explicit is_causal is every layer's; otherwise sliding layers are causal within the block and
// full ones see all of it.
Status parse_layer_kinds(const Json& config, const Nested& nested, DflashConfig& out) {
  const Json* given = nested.find("is_causal");
  if (given == nullptr) given = nested.find("causal");
  TRY_ASSIGN(const bool causal, flag_of(given, "is_causal", false));
  TRY_ASSIGN(const bool slides,
             flag_of(get(config, "use_sliding_window"), "use_sliding_window", true));
  TRY_ASSIGN(const bool swa, flag_of(nested.find("use_swa"), "use_swa", true));
  const Json* types = get(config, "layer_types");
  if (types != nullptr && (!types->is_array() || std::ssize(types->as_array()) != out.layers))
    return wrong("layer_types", str_cat("is no list of ", out.layers, " layers"));
  const std::string_view window =
      nested.find("swa_window_size") != nullptr ? "swa_window_size" : "sliding_window";
  for (int64_t i = 0; i < out.layers; ++i) {
    DflashLayerKind kind{.causal = causal};
    const Json* type = types == nullptr ? nullptr : &types->as_array()[static_cast<size_t>(i)];
    const bool sliding = type != nullptr && *type == Json("sliding_attention");
    if (type != nullptr && !sliding && *type != Json("full_attention"))
      return unsupported(
          "layer_types",
          str_cat("holds ", type->dump(), "; full_attention and sliding_attention are supported"));
    if (sliding && slides && swa) {
      TRY_ASSIGN(kind.window, size_of(nested.holder(window), window, INT32_MAX));
      kind.causal = given == nullptr || causal;
    }
    out.layer_kinds.push_back(kind);
  }
  return {};
}

}  // namespace

Result<DflashConfig> DflashConfig::parse(const Json& config) {
  DflashConfig out;
  TRY(parse_architecture(config));
  const Nested nested(config);
  TRY(nested.check_keys());
  TRY(require_text(config, "hidden_act", {"silu"}));
  TRY(require_bool(config, "attention_bias", false));
  TRY_ASSIGN(out.hidden_size, size_of(config, "hidden_size", kMaxWidth));
  TRY_ASSIGN(out.layers, size_of(config, "num_hidden_layers", kMaxSmall));
  TRY_ASSIGN(out.intermediate_size, size_of(config, "intermediate_size", kMaxWidth));
  TRY_ASSIGN(out.query_heads, size_of(config, "num_attention_heads", kMaxSmall));
  TRY_ASSIGN(out.kv_heads, size_of(config, "num_key_value_heads", kMaxSmall));
  TRY_ASSIGN(out.head_dim, size_of(config, "head_dim", kMaxSmall));
  if (out.query_heads % out.kv_heads != 0)
    return wrong("num_attention_heads", str_cat("is ", out.query_heads, ", no multiple of ",
                                                out.kv_heads, " num_key_value_heads"));
  if (out.head_dim % 2 != 0) return wrong("head_dim", "is odd");
  TRY_ASSIGN(const double epsilon, number_of(config, "rms_norm_eps"));
  out.norm_epsilon = static_cast<float>(epsilon);
  TRY_ASSIGN(out.max_positions, size_of(config, "max_position_embeddings", INT32_MAX));
  TRY_ASSIGN(out.block_size, size_of(nested.holder("block_size"), "block_size", kMaxSmall));
  if (out.block_size < 2 || out.block_size > kMaxDecodeRows)
    return unsupported("block_size", str_cat("is ", out.block_size, ": 2 to ", kMaxDecodeRows,
                                             " rows are supported"));
  TRY_ASSIGN(const int64_t mask,
             count_of(nested.holder("mask_token_id"), "mask_token_id", INT32_MAX));
  if (nested.find("mask_token_id") == nullptr) return wrong("mask_token_id", "is missing");
  out.mask_token_id = static_cast<int32_t>(mask);
  TRY_ASSIGN(out.vocab_size, count_of(config, "vocab_size", INT32_MAX));
  TRY_ASSIGN(out.target_layers, count_of(config, "num_target_layers", kMaxSmall));
  TRY_ASSIGN(const int64_t draft_vocab, count_of(config, "draft_vocab_size", INT32_MAX));
  if (draft_vocab != 0 && draft_vocab != out.vocab_size)
    return unsupported("draft_vocab_size", "differs from vocab_size: that is not supported");
  TRY(parse_taps(nested, out));
  TRY(parse_rope(config, out));
  TRY(parse_layer_kinds(config, nested, out));
  return out;
}

Status DflashConfig::check_target(const ModelConfig& target) const {
  const auto differs = [](std::string_view key, int64_t ours, int64_t theirs) {
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("the drafter was made for another model: its ", key, " is ", ours,
                         ", the model's ", theirs)};
  };
  if (hidden_size != target.hidden_size)
    return differs("hidden_size", hidden_size, target.hidden_size);
  if (vocab_size != 0 && vocab_size != target.vocab_size)
    return differs("vocab_size", vocab_size, target.vocab_size);
  if (target_layers != 0 && target_layers != target.layers)
    return differs("num_target_layers", target_layers, target.layers);
  const int64_t last = *std::ranges::max_element(taps);
  if (last >= target.layers)
    return Error{ErrorCode::kInvalidArgument, str_cat("the drafter reads layer ", last,
                                                      " (dflash_config.target_layer_ids), and "
                                                      "the model has ",
                                                      target.layers)};
  if (mask_token_id >= target.vocab_size)
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("the drafter's mask_token_id is ", mask_token_id,
                         ", outside the model's vocabulary of ", target.vocab_size)};
  return {};
}

}  // namespace pewter
