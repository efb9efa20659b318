// Where one linear module's weights lie in a checkpoint, and in which format. Decided from the
// tensors that are there, checked against the config:
//
//   P.weight F32 | F16 | BF16                          f32, f16, bf16
//   P.weight F8_E4M3 + P.weight_scale_inv              fp8_block128
//   P.qweight [k/8, n] + P.qzeros + P.scales (+ g_idx) int4_group128
//
// Everything else a module may be stored as (AWQ, NVFP4, compressed-tensors, ModelOpt) is
// recognised and refused by name.
#pragma once

#include <optional>

#include "checkpoint/checkpoint.h"
#include "checkpoint/quant_config.h"
#include "tensor/weight_matrix.h"

namespace pewter {

struct LinearSource {
  std::string module;  // canonical, for messages
  WeightFormat format = WeightFormat::kBF16;
  int64_t n = 0, k = 0;
  DType scale_dtype = DType::kF32;
  ZeroStyle zero_style = ZeroStyle::kEither;  // int4
  bool has_zeros = false;                     // int4: zero points other than 8 are allowed
  const StoredTensor* values = nullptr;       // weight or qweight
  const StoredTensor* scales = nullptr;       // weight_scale_inv or scales
  const StoredTensor* zeros = nullptr;        // qzeros
  const StoredTensor* group_index = nullptr;  // g_idx
  int64_t values_offset = 0;                  // bytes into values: a slice of a fused tensor

  WeightSpec spec() const {
    return {.format = format, .n = n, .k = k, .scale_dtype = scale_dtype, .has_zeros = has_zeros};
  }
  // Bytes of the file that reading this takes.
  int64_t file_bytes() const;
};

// Which tensors of a checkpoint have found a use, by id.
using Claims = std::vector<bool>;

struct LinearRequest {
  std::string module;
  int64_t n = 0, k = 0;
  bool float_only = false;  // routers, gates and the embedding are never quantised
};

// Finds a module and claims its tensors. What is wrong becomes a fault, and the result is empty.
std::optional<LinearSource> find_linear(const Checkpoint& checkpoint, const QuantConfig& quant,
                                        const LinearRequest& request, Claims& claims,
                                        Findings& findings);

// A fused stack of plain matrices, [count, rows, k] in one tensor (experts.gate_up_proj): matrix
// `index` is rows [row_begin, row_begin + n). The shape is checked by find_fused_tensor.
const StoredTensor* find_fused_tensor(const Checkpoint& checkpoint, std::string_view name,
                                      const std::vector<int64_t>& shape, Claims& claims,
                                      Findings& findings);
LinearSource fused_slice(const StoredTensor& tensor, int64_t index, int64_t row_begin, int64_t n);

// A small tensor that becomes f32: norms, the convolution, A_log, dt_bias. Any of `shapes` will do.
const StoredTensor* find_vector(const Checkpoint& checkpoint, std::string_view name,
                                const std::vector<std::vector<int64_t>>& shapes, Claims& claims,
                                Findings& findings);

}  // namespace pewter
