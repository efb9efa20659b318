// Formats against the config, and the data rules: what load_reject_test.cc is for structure.
#include "model/qwen35/testing/reject_rule.h"

namespace pewter {
namespace {

void set_extra(SyntheticCheckpoint& s, const std::string& entry) {
  Json quant = *s.config.find("quantization_config");
  quant.set(
      "extra_config",
      Json::parse(str_cat("{\"model.language_model.", kInt4Module, "\": ", entry, "}")).value());
  s.config.set("quantization_config", quant);
}
void hybrid_part(SyntheticCheckpoint& s) {
  s.set_quantization(auto_round_config());
  s.pack_fp8("layers.0.mlp.shared_expert.gate_proj");
}

INSTANTIATE_TEST_SUITE_P(
    Int4, RejectRules,
    testing::Values(
        RejectRule{"no_scales",
                   [](auto& s) {
                     make_int4(s);
                     s.erase(int4_part("scales"));
                   },
                   "k_proj: its .scales is missing"},
        RejectRule{"no_zeros",
                   [](auto& s) {
                     make_int4(s);
                     s.erase(int4_part("qzeros"));
                   },
                   "k_proj: its .qzeros is missing"},
        RejectRule{"twice",
                   [](auto& s) {
                     make_int4(s);
                     s.add(int4_part("weight"), "BF16", {64, 128});
                   },
                   "k_proj.weight: is stored twice: as .weight and as .qweight"},
        RejectRule{"awq",
                   [](auto& s) {
                     make_int4(s);
                     s.add(int4_part("qweight"), "I32", {128, 8});
                   },
                   "k_proj.qweight: the AWQ layout [k, n/8] is not supported"},
        RejectRule{"shape",
                   [](auto& s) {
                     make_int4(s);
                     s.add(int4_part("qweight"), "I32", {16, 32});
                   },
                   "k_proj.qweight: has shape [16, 32], want [16, 64]"},
        RejectRule{"scales_shape",
                   [](auto& s) {
                     make_int4(s);
                     s.add(int4_part("scales"), "F16", {64, 1});
                   },
                   "k_proj.scales: has shape [64, 1], want [1, 64]"},
        RejectRule{"zeros_shape",
                   [](auto& s) {
                     make_int4(s);
                     s.add(int4_part("qzeros"), "I32", {8, 1});
                   },
                   "k_proj.qzeros: has shape [8, 1], want [1, 8]"},
        RejectRule{"scales_type",
                   [](auto& s) {
                     make_int4(s);
                     s.add(int4_part("scales"), "I16", {1, 64});
                   },
                   "k_proj.scales: is I16, want F16, BF16 or F32"},
        RejectRule{"qweight_type",
                   [](auto& s) {
                     make_int4(s);
                     s.add(int4_part("qweight"), "U32", {16, 64});
                   },
                   "k_proj.qweight: is U32, want I32"},
        RejectRule{"router",
                   [](auto& s) {
                     s.set_quantization(auto_round_config());
                     s.add("layers.0.mlp.gate.qweight", "I32", {16, 4});
                     s.add("layers.0.mlp.gate.qzeros", "I32", {1, 1});
                     s.add("layers.0.mlp.gate.scales", "F16", {1, 4});
                     s.erase("layers.0.mlp.gate.weight");
                   },
                   "mlp.gate.qweight: must not be quantised, and is INT4"},
        RejectRule{"no_config", [](auto& s) { s.pack_int4(kInt4Module); },
                   "k_proj.qweight: is int4_group128, but config.json has no quantization_config"},
        RejectRule{"fp8_config",
                   [](auto& s) {
                     s.pack_int4(kInt4Module);
                     s.set_quantization(fp8_config());
                   },
                   "k_proj.qweight: is int4_group128, but quant_method is fp8"},
        RejectRule{"config_says_float",
                   [](auto& s) {
                     make_int4(s);
                     set_extra(s, R"({"bits": 16, "data_type": "fp"})");
                   },
                   "k_proj.qweight: is int4_group128, but extra_config"},
        RejectRule{"config_says_int4",
                   [](auto& s) {
                     s.set_quantization(auto_round_config());
                     set_extra(s, R"({"bits": 4})");
                   },
                   "k_proj.weight: is stored as bf16, but extra_config"},
        RejectRule{"config_says_int4_of_fp8",
                   [](auto& s) {
                     s.set_quantization(auto_round_config());
                     s.pack_fp8(kInt4Module);
                     set_extra(s, R"({"bits": 4})");
                   },
                   "k_proj.weight: is stored as fp8_block128, but extra_config"},
        RejectRule{"config_says_8_bits",
                   [](auto& s) {
                     make_int4(s);
                     set_extra(s, R"({"bits": 8})");
                   },
                   "asks for {\"bits\":8}, which is not supported"},
        RejectRule{"outside_blocks",
                   [](auto& s) {
                     s.set_quantization(auto_round_config());
                     s.pack_int4("lm_head");
                   },
                   "lm_head.qweight: is int4_group128, but block_name_to_quantize"},
        RejectRule{"mixed_experts",
                   [](auto& s) {
                     s.set_quantization(auto_round_config());
                     s.pack_int4("layers.0.mlp.experts.2.up_proj");
                   },
                   "experts.2.up_proj.qweight: is int4_group128 with F16 scales where "
                   "layers.0.mlp.experts.0.up_proj is bf16: the experts of a layer must share one "
                   "format"},
        RejectRule{"activation_order",
                   [](auto& s) {
                     make_int4(s, {.group_index = true});
                     poke(s.tensor(int4_part("g_idx")), 4 * 77, {3});
                   },
                   "k_proj.g_idx: input 77 is in group 3: activation order is not supported"},
        RejectRule{
            "v2_labelled_v1", [](auto& s) { make_int4(s, {.zeros = ZeroStyle::kPlain}); },
            "k_proj.qzeros: zero points are stored as 8, but the config says they are stored as z "
            "- 1"},
        RejectRule{"v1_labelled_v2",
                   [](auto& s) {
                     make_int4(s);
                     s.set_quantization(auto_round_config(ZeroStyle::kPlain));
                   },
                   "k_proj.qzeros: zero points are stored as 7"},
        RejectRule{"asymmetric_labelled_symmetric",
                   [](auto& s) {
                     make_int4(s);
                     poke(s.tensor(int4_part("qzeros")), 4 * 5, {0x76});
                   },
                   "k_proj.qzeros: word [0, 5] is not the zero point of symmetric weights"},
        RejectRule{"mixed_patterns",
                   [](auto& s) {
                     make_int4(s);
                     s.set_quantization(auto_round_config(ZeroStyle::kEither));
                     poke(s.tensor(int4_part("qzeros")), 4 * 5, {0x88, 0x88, 0x88, 0x88});
                   },
                   "k_proj.qzeros: word [0, 5] is not the zero point"},
        RejectRule{"infinite_scale",
                   [](auto& s) {
                     make_int4(s);
                     poke(s.tensor(int4_part("scales")), 2 * 9, {0x00, 0x7C});
                   },
                   "k_proj.scales: scale [0, 9] is not finite"},
        RejectRule{"nan_scale",
                   [](auto& s) {
                     make_int4(s);
                     poke(s.tensor(int4_part("scales")), 2 * 9, {0x01, 0xFE});
                   },
                   "k_proj.scales: scale [0, 9] is not finite"}),
    kRejectRuleName);

INSTANTIATE_TEST_SUITE_P(
    Fp8AndFloats, RejectRules,
    testing::Values(
        RejectRule{"no_scale",
                   [](auto& s) {
                     make_fp8(s);
                     s.erase("layers.0.linear_attn.in_proj_qkv.weight_scale_inv");
                   },
                   "in_proj_qkv.weight: is FP8 without its .weight_scale_inv"},
        RejectRule{"no_weight",
                   [](auto& s) {
                     make_fp8(s);
                     s.erase("layers.0.linear_attn.in_proj_qkv.weight");
                   },
                   "in_proj_qkv.weight_scale_inv: there is a scale and no .weight"},
        RejectRule{"scale_of_floats",
                   [](auto& s) { s.add("layers.0.mlp.gate.weight_scale_inv", "BF16", {1, 1}); },
                   "gate.weight_scale_inv: a scale beside a weight that is BF16, not F8_E4M3"},
        RejectRule{"scale_shape",
                   [](auto& s) {
                     make_fp8(s);
                     s.add("layers.0.linear_attn.in_proj_qkv.weight_scale_inv", "BF16", {1, 1});
                   },
                   "weight_scale_inv: has shape [1, 1], want [2, 1]"},
        RejectRule{"per_channel",
                   [](auto& s) {
                     make_fp8(s);
                     s.add("layers.0.linear_attn.in_proj_qkv.weight_scale", "BF16", {256, 1});
                   },
                   "FP8 weights scaled per channel or tensor are not supported"},
        RejectRule{"nvfp4",
                   [](auto& s) {
                     s.add("layers.1.self_attn.k_proj.weight_packed", "U8", {64, 64});
                     s.add("layers.1.self_attn.k_proj.weight_scale", "F8_E4M3", {64, 8});
                   },
                   "k_proj.weight_packed: NVFP4 (compressed-tensors) weights are not supported"},
        RejectRule{"modelopt",
                   [](auto& s) { s.add("layers.1.self_attn.k_proj.weight", "U8", {64, 64}); },
                   "k_proj.weight: NVFP4 (ModelOpt) weights are not supported"},
        RejectRule{"pack_quantized",
                   [](auto& s) {
                     s.erase("layers.1.self_attn.k_proj.weight");
                     s.add("layers.1.self_attn.k_proj.weight_packed", "I32", {64, 16});
                   },
                   "compressed-tensors pack-quantized weights are not supported"},
        RejectRule{
            "listed_as_float",
            [](auto& s) {
              s.set_quantization(fp8_config());
              s.pack_fp8("lm_head");
            },
            "lm_head.weight: is fp8_block128, but modules_to_not_convert says that it is not"},
        RejectRule{"fp8_router",
                   [](auto& s) {
                     s.set_quantization(fp8_config());
                     s.pack_fp8("layers.1.mlp.gate");
                   },
                   "mlp.gate.weight: must not be quantised, and is FP8"},
        RejectRule{"static_activations",
                   [](auto& s) {
                     make_fp8(s);
                     Json quant = *s.config.find("quantization_config");
                     quant.set("activation_scheme", "static");
                     s.config.set("quantization_config", quant);
                   },
                   "activation_scheme is static, and there is no .input_scale"},
        RejectRule{"half_a_hybrid", hybrid_part,
                   "1 of 6 shared expert weights are FP8: all or none"},
        RejectRule{"nan_code",
                   [](auto& s) {
                     make_fp8(s);
                     poke(fp8_tensor(s, "weight"), 128 * 200 + 5, {0xFF});
                   },
                   "in_proj_qkv.weight: element [200, 5] is NaN"},
        RejectRule{"negative_scale",
                   [](auto& s) {
                     make_fp8(s);
                     poke(fp8_tensor(s, "weight_scale_inv"), 2, {0x00, 0xBF});
                   },
                   "weight_scale_inv: scale [1, 0] is -0.5"},
        RejectRule{"infinite_scale_fp8",
                   [](auto& s) {
                     make_fp8(s);
                     poke(fp8_tensor(s, "weight_scale_inv"), 2, {0x80, 0x7F});
                   },
                   "weight_scale_inv: scale [1, 0] is inf"},
        RejectRule{"zero_scale",
                   [](auto& s) {
                     make_fp8(s);
                     poke(fp8_tensor(s, "weight_scale_inv"), 2, {0, 0});
                   },
                   "weight_scale_inv: scale [1, 0] is 0 over weights that are not"},
        RejectRule{
            "nan_float",
            [](auto& s) { poke(s.tensor("lm_head.weight"), 2 * (128 * 3 + 7), {0xC0, 0x7F}); },
            "model.safetensors: lm_head.weight: element [3, 7] is not finite"},
        RejectRule{"infinite_fused",
                   [](auto& s) {
                     s.fuse_experts();  // expert 1, row 130 of gate_up: row 386 of the tensor
                     poke(s.tensor("layers.0.mlp.experts.gate_up_proj"), 2 * (128 * 386 + 1),
                          {0x80, 0xFF});
                   },
                   "experts.gate_up_proj: element [386, 1] is not finite"},
        RejectRule{"nan_vector",
                   [](auto& s) { poke(s.tensor("layers.0.linear_attn.dt_bias"), 2, {0xC0, 0x7F}); },
                   "dt_bias: element 1 is not finite"}),
    kRejectRuleName);

}  // namespace
}  // namespace pewter
