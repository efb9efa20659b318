#include "model/qwen35/testing/synthetic_checkpoint.h"

#include <cstring>

#include "base/rng.h"
#include "tensor/formats/fp8_block128.h"
#include "tensor/formats/int4_group128.h"

namespace pewter {
namespace {

constexpr const char* kConfig = R"({
  "model_type": "qwen3_5_moe", "tie_word_embeddings": false,
  "text_config": {
    "hidden_size": 128, "num_hidden_layers": 2, "vocab_size": 256, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6, "hidden_act": "silu", "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 64, "linear_num_key_heads": 1,
    "linear_num_value_heads": 2, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention", "full_attention"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
      "partial_rotary_factor": 0.25, "mrope_section": [3, 3, 2], "mrope_interleaved": true},
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128,
    "shared_expert_intermediate_size": 128, "mtp_num_hidden_layers": 1, "eos_token_id": 7}})";

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
std::vector<std::byte> bytes_of(const TensorView& view) {
  return {view.data(), view.data() + view.bytes()};
}

// Row-major [rows, columns] to [columns, rows].
std::vector<std::byte> transposed(const TensorView& view, int64_t rows, int64_t columns) {
  const auto size = static_cast<size_t>(view.bytes() / (rows * columns));
  std::vector<std::byte> out(static_cast<size_t>(view.bytes()));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      std::memcpy(out.data() + static_cast<size_t>(c * rows + r) * size,
                  view.data() + static_cast<size_t>(r * columns + c) * size, size);
  return out;
}

std::vector<float> random_values(const std::string& name, int64_t count) {
  Rng rng(std::hash<std::string>()(name));
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = to_float(to_bfloat16(rng.normal() * 0.05f));
  return values;
}

}  // namespace

SyntheticCheckpoint::SyntheticCheckpoint(bool moe) : config(Json::parse(kConfig).value()) {
  if (!moe) {
    Json text = *config.find("text_config");
    text.set("num_experts", 0);
    text.set("intermediate_size", 256);
    config.set("text_config", text);
    config.set("model_type", "qwen3_5");
  }
  ModelWeights weights;
  const ModelConfig parsed = ModelConfig::parse(config).value();
  const Parameters parameters = list_parameters(parsed, /*with_mtp=*/true, weights);
  for (const MatrixParameter& p : parameters.matrices) {
    for (int64_t i = 0; i < p.count; ++i) {
      const std::string module =
          p.is_experts() ? str_cat(p.module, ".", i, ".", p.projection) : p.module;
      add_module(module, p.n, p.k);
    }
  }
  for (const VectorParameter& p : parameters.vectors) {
    floats[p.name] = random_values(p.name, p.elements());
    if (p.name.ends_with(".A_log")) floats[p.name][0] = 1.5f;  // as trained: not all in (−0.5, 0)
    std::vector<BFloat16> stored;
    for (const float x : floats[p.name]) stored.push_back(to_bfloat16(x));
    add(p.name, "BF16", p.shapes[0]);
    tensor(p.name).bytes = bytes_of(stored);
  }
}

std::string SyntheticCheckpoint::file_name(const std::string& canonical) {
  const bool bare = canonical.starts_with("lm_head") || canonical.starts_with("mtp.") ||
                    canonical.starts_with("model.");
  return (bare ? "" : "model.language_model.") + canonical;
}

void SyntheticCheckpoint::add(const std::string& canonical, const std::string& dtype,
                              std::vector<int64_t> shape) {
  int64_t bytes = 1;
  for (int i = 0; i <= static_cast<int>(DType::kF64); ++i)
    if (dtype_name(static_cast<DType>(i)) == dtype) bytes = dtype_bytes(static_cast<DType>(i));
  for (const int64_t extent : shape) bytes *= extent;
  tensors[file_name(canonical)] = {file_name(canonical), dtype, std::move(shape),
                                   std::vector<std::byte>(static_cast<size_t>(bytes))};
}

void SyntheticCheckpoint::add_module(const std::string& module, int64_t n, int64_t k) {
  values_[module] = random_values(module, n * k);
  expected[module] = {.n = n, .k = k};
  pack_floats(module, DType::kBF16);
}

void SyntheticCheckpoint::erase_module(const std::string& module) {
  std::erase_if(tensors, [prefix = file_name(module) + "."](const auto& entry) {
    return entry.first.starts_with(prefix);
  });
}

void SyntheticCheckpoint::pack_floats(const std::string& module, DType dtype) {
  erase_module(module);
  const int64_t n = expected.at(module).n, k = expected.at(module).k;
  const WeightFormat format = dtype == DType::kF32   ? WeightFormat::kF32
                              : dtype == DType::kF16 ? WeightFormat::kF16
                                                     : WeightFormat::kBF16;
  WeightMatrix w = make_canonical_weight({.format = format, .n = n, .k = k}).value();
  for (int64_t i = 0; i < n * k; ++i) {
    const float x = values_.at(module)[static_cast<size_t>(i)];
    if (dtype == DType::kF16)  // enough for a test: the sign and a power of two
      w.values.data_as<Float16>()[i] = {static_cast<uint16_t>(x < 0 ? 0xA800 : 0x2800)};
    else
      store_float(w.values.data(), dtype, i, x);
  }
  add(module + ".weight", std::string(dtype_name(dtype)), {n, k});
  tensor(module + ".weight").bytes = bytes_of(w.values);
  expected[module] = std::move(w);
}

void SyntheticCheckpoint::pack_fp8(const std::string& module, DType scale_dtype) {
  erase_module(module);
  const int64_t n = expected.at(module).n, k = expected.at(module).k;
  WeightMatrix w =
      make_canonical_weight(
          {.format = WeightFormat::kFp8Block128, .n = n, .k = k, .scale_dtype = scale_dtype})
          .value();
  encode_fp8(values_.at(module).data(), w, 0);
  add(module + ".weight", "F8_E4M3", {n, k});
  tensor(module + ".weight").bytes = bytes_of(w.values);
  add(module + ".weight_scale_inv", std::string(dtype_name(scale_dtype)),
      {fp8_blocks(n), fp8_blocks(k)});
  tensor(module + ".weight_scale_inv").bytes = bytes_of(w.scales);
  expected[module] = std::move(w);
}

void SyntheticCheckpoint::pack_int4(const std::string& module, const Int4Packing& packing) {
  erase_module(module);
  const int64_t n = expected.at(module).n, k = expected.at(module).k, groups = k / kInt4Group;
  WeightMatrix w = make_canonical_weight({.format = WeightFormat::kInt4Group128,
                                          .n = n,
                                          .k = k,
                                          .scale_dtype = packing.scale_dtype,
                                          .has_zeros = !packing.symmetric})
                       .value();
  encode_int4(values_.at(module).data(), w, 0);
  const int bias = packing.zeros == ZeroStyle::kMinusOne ? 1 : 0;
  std::vector<uint32_t> words(static_cast<size_t>(k / 8 * n)),
      zero_words(static_cast<size_t>(groups * n / 8));
  const auto* codes = w.values.data_as<uint8_t>();
  for (int64_t r = 0; r < n; ++r)
    for (int64_t c = 0; c < k; ++c)
      words[static_cast<size_t>(c / 8 * n + r)] |=
          static_cast<uint32_t>((codes[(r * k + c) / 2] >> (c % 2 * 4)) & 15) << (c % 8 * 4);
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t r = 0; r < n; ++r) {
      uint8_t zero = 8;
      if (!packing.symmetric) {  // stored z − 1 must not go below 0
        uint8_t& at = w.zeros.data_as<uint8_t>()[r * groups + g];
        at = static_cast<uint8_t>(std::max<int>(at, bias));
        zero = at;
      }
      zero_words[static_cast<size_t>(g * n / 8 + r / 8)] |= static_cast<uint32_t>(zero - bias)
                                                            << (r % 8 * 4);
    }
  }
  add(module + ".qweight", "I32", {k / 8, n});
  tensor(module + ".qweight").bytes = bytes_of(words);
  add(module + ".qzeros", "I32", {groups, n / 8});
  tensor(module + ".qzeros").bytes = bytes_of(zero_words);
  add(module + ".scales", std::string(dtype_name(packing.scale_dtype)), {groups, n});
  tensor(module + ".scales").bytes = transposed(w.scales, n, groups);
  if (packing.group_index) {
    std::vector<int32_t> index(static_cast<size_t>(k));
    for (size_t i = 0; i < index.size(); ++i) index[i] = static_cast<int32_t>(i / kInt4Group);
    add(module + ".g_idx", "I32", {k});
    tensor(module + ".g_idx").bytes = bytes_of(index);
  }
  expected[module] = std::move(w);
}

std::vector<std::string> SyntheticCheckpoint::quantisable_modules() const {
  std::vector<std::string> modules;
  for (const auto& [module, w] : expected)
    if (!module.ends_with("mlp.gate") && !module.ends_with("_gate") && !module.ends_with("_a") &&
        !module.ends_with("_b") && module != "embed_tokens" && module != "lm_head" &&
        module.find("shared_expert") == std::string::npos && !module.starts_with("mtp."))
      modules.push_back(module);
  return modules;
}

void SyntheticCheckpoint::set_quantization(const std::string& json) {
  config.set("quantization_config", Json::parse(json).value());
}

void SyntheticCheckpoint::fuse_experts() {
  for (const char* stem :
       {"layers.0.mlp.experts", "layers.1.mlp.experts", "mtp.layers.0.mlp.experts"}) {
    std::vector<std::byte> gate_up, down;
    const auto take = [&](int e, const char* projection, std::vector<std::byte>& to) {
      const std::string name = str_cat(stem, ".", e, ".", projection, ".weight");
      const std::vector<std::byte>& from = tensor(name).bytes;
      to.insert(to.end(), from.begin(), from.end());
      erase(name);
    };
    for (int e = 0; e < 4; ++e) {
      take(e, "gate_proj", gate_up);
      take(e, "up_proj", gate_up);
      take(e, "down_proj", down);
    }
    add(str_cat(stem, ".gate_up_proj"), "BF16", {4, 256, 128});
    tensor(str_cat(stem, ".gate_up_proj")).bytes = gate_up;
    add(str_cat(stem, ".down_proj"), "BF16", {4, 128, 128});
    tensor(str_cat(stem, ".down_proj")).bytes = down;
  }
}

void SyntheticCheckpoint::rename(const std::string& from, const std::string& to) {
  std::map<std::string, TensorData> renamed;
  for (auto& [name, data] : tensors) {
    if (data.name.starts_with(from)) data.name = to + data.name.substr(from.size());
    renamed[data.name] = std::move(data);
  }
  tensors = std::move(renamed);
}

void SyntheticCheckpoint::write(const TempDirectory& directory) const {
  std::vector<TensorData> list;
  for (const auto& [name, data] : tensors) list.push_back(data);
  directory.write("model.safetensors", list);
  directory.write("config.json", config.dump());
}

std::string auto_round_config(ZeroStyle zeros, bool symmetric) {
  const char* packing = zeros == ZeroStyle::kMinusOne ? "auto_round:auto_gptq"
                        : zeros == ZeroStyle::kPlain  ? "auto_round"
                                                      : "auto_round:gptqmodel";
  return str_cat(
      R"({"quant_method": "auto-round", "bits": 4, "group_size": 128, "data_type": "int", "sym": )",
      symmetric, R"(, "packing_format": ")", packing,
      R"(", "block_name_to_quantize": "model.language_model.layers"})");
}

std::string fp8_config() {
  return R"({"quant_method": "fp8", "weight_block_size": [128, 128],
             "activation_scheme": "dynamic", "modules_to_not_convert": ["lm_head"]})";
}

}  // namespace pewter
