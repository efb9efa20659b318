#include "checkpoint/linear_source.h"

#include <algorithm>
#include <array>

#include "tensor/formats/fp8_block128.h"
#include "tensor/formats/int4_group128.h"

namespace pewter {
namespace {

std::optional<WeightFormat> float_format(const StoredTensor& tensor) {
  if (tensor.info.dtype == DType::kF32) return WeightFormat::kF32;
  if (tensor.info.dtype == DType::kF16) return WeightFormat::kF16;
  if (tensor.info.dtype == DType::kBF16) return WeightFormat::kBF16;
  return std::nullopt;
}

std::string type_text(const StoredTensor& tensor) {
  return str_cat(tensor.info.dtype_text, " ", shape_text(tensor.info.shape));
}

// Decides one module. Each member looks at one thing; a false answer has left a fault behind.
class ModuleFinder {
 public:
  ModuleFinder(const Checkpoint& checkpoint, const QuantConfig& quant, const LinearRequest& request,
               Claims& claims, Findings& findings)
      : checkpoint_(checkpoint),
        quant_(quant),
        request_(request),
        claims_(claims),
        findings_(findings),
        said_(quant.module(request.module)) {}

  std::optional<LinearSource> find() {
    weight_ = take("weight");
    weight_scale_inv_ = take("weight_scale_inv");
    qweight_ = take("qweight");
    qzeros_ = take("qzeros");
    scales_ = take("scales");
    g_idx_ = take("g_idx");
    weight_packed_ = take("weight_packed");
    weight_scale_ = take("weight_scale");
    for (const char* rest : {"weight_global_scale", "weight_scale_2", "weight_shape",
                             "weight_zero_point", "weight_g_idx"})
      foreign_ = take(rest) != nullptr || foreign_;
    source_.module = request_.module;
    source_.n = request_.n;
    source_.k = request_.k;
    if (!refuse_foreign()) return std::nullopt;
    bool found = false;
    if (weight_ != nullptr && qweight_ != nullptr)
      fault(weight_, str_cat("is stored twice: as .weight and as .qweight (",
                             checkpoint_.file_name(*qweight_), ")"));
    else if (qweight_ != nullptr || qzeros_ != nullptr || scales_ != nullptr || g_idx_ != nullptr)
      found = find_int4();
    else if (weight_ != nullptr && weight_->info.dtype == DType::kF8E4M3)
      found = find_fp8();
    else if (weight_ != nullptr)
      found = find_plain();
    else if (weight_scale_inv_ != nullptr)
      fault(weight_scale_inv_, "there is a scale and no .weight");
    else
      fault(nullptr, "is missing: neither .weight nor .qweight is there", ErrorCode::kNotFound);
    if (!found || !check_config()) return std::nullopt;
    return source_;
  }

 private:
  const StoredTensor* take(const char* part) {
    const StoredTensor* tensor = checkpoint_.find(str_cat(request_.module, ".", part));
    if (tensor != nullptr) claims_[static_cast<size_t>(tensor->id)] = true;
    return tensor;
  }

  // Always false, so that a finder can return it.
  bool fault(const StoredTensor* tensor, std::string_view reason,
             ErrorCode code = ErrorCode::kCorruptData) {
    findings_.fault(tensor != nullptr ? checkpoint_.file_name(*tensor) : "",
                    tensor != nullptr ? tensor->info.name : request_.module, reason, code);
    return false;
  }

  bool has_shape(const StoredTensor* tensor, const std::vector<int64_t>& shape) {
    if (tensor->info.shape == shape) return true;
    return fault(tensor, str_cat("has shape ", shape_text(tensor->info.shape), ", want ",
                                 shape_text(shape)));
  }
  bool has_float_scale(const StoredTensor* tensor) {
    const std::optional<WeightFormat> format = float_format(*tensor);
    if (!format)
      return fault(tensor, str_cat("is ", tensor->info.dtype_text, ", want F16, BF16 or F32"));
    source_.scale_dtype = *tensor->info.dtype;
    return true;
  }

  bool refuse_foreign() {
    constexpr ErrorCode kCode = ErrorCode::kUnsupported;
    if (weight_packed_ != nullptr && weight_packed_->info.dtype == DType::kI32)
      return fault(weight_packed_, "compressed-tensors pack-quantized weights are not supported",
                   kCode);
    if (weight_packed_ != nullptr)
      return fault(weight_packed_, "NVFP4 (compressed-tensors) weights are not supported", kCode);
    if (weight_ != nullptr && weight_->info.dtype == DType::kU8)
      return fault(weight_, "NVFP4 (ModelOpt) weights are not supported", kCode);
    if (weight_scale_ != nullptr)
      return fault(weight_scale_, "FP8 weights scaled per channel or tensor are not supported",
                   kCode);
    if (foreign_) return fault(nullptr, "has tensors of a format that is not known", kCode);
    return true;
  }

  bool find_plain() {
    const std::optional<WeightFormat> format = float_format(*weight_);
    if (!format)
      return fault(weight_,
                   str_cat("is ", weight_->info.dtype_text, ", want BF16, F16, F32 or F8_E4M3"));
    if (weight_scale_inv_ != nullptr)
      return fault(weight_scale_inv_, str_cat("a scale beside a weight that is ",
                                              weight_->info.dtype_text, ", not F8_E4M3"));
    source_.format = *format;
    source_.values = weight_;
    return has_shape(weight_, {request_.n, request_.k});
  }

  bool find_fp8() {
    source_.format = WeightFormat::kFp8Block128;
    source_.values = weight_;
    source_.scales = weight_scale_inv_;
    if (weight_scale_inv_ == nullptr)
      return fault(weight_, "is FP8 without its .weight_scale_inv", ErrorCode::kNotFound);
    if (request_.float_only) return fault(weight_, "must not be quantised, and is FP8");
    if (quant_.static_activations() &&
        checkpoint_.find(request_.module + ".input_scale") == nullptr)
      return fault(weight_, "activation_scheme is static, and there is no .input_scale");
    return has_shape(weight_, {request_.n, request_.k}) && has_float_scale(weight_scale_inv_) &&
           has_shape(weight_scale_inv_, {fp8_blocks(request_.n), fp8_blocks(request_.k)});
  }

  bool find_int4() {
    const int64_t n = request_.n, k = request_.k, groups = k / kInt4Group;
    source_.format = WeightFormat::kInt4Group128;
    source_.values = qweight_;
    source_.scales = scales_;
    source_.zeros = qzeros_;
    source_.group_index = g_idx_;
    for (const auto& [tensor, part] :
         {std::pair(qweight_, "qweight"), {qzeros_, "qzeros"}, {scales_, "scales"}})
      if (tensor == nullptr)
        return fault(nullptr, str_cat("its .", part, " is missing, other parts of it are there"),
                     ErrorCode::kNotFound);
    if (request_.float_only) return fault(qweight_, "must not be quantised, and is INT4");
    if (qweight_->info.shape == std::vector<int64_t>{k, n / 8} && n % 8 == 0)
      return fault(qweight_, "the AWQ layout [k, n/8] is not supported", ErrorCode::kUnsupported);
    if (k % kInt4Group != 0)
      return fault(qweight_, str_cat("groups of 128 do not divide its ", k, " inputs"));
    if (n % 8 != 0) return fault(qweight_, str_cat("8 do not divide its ", n, " outputs"));
    for (const StoredTensor* tensor : {qweight_, qzeros_, g_idx_})
      if (tensor != nullptr && tensor->info.dtype != DType::kI32)
        return fault(tensor, str_cat("is ", tensor->info.dtype_text, ", want I32"));
    return has_shape(qweight_, {k / 8, n}) && has_shape(qzeros_, {groups, n / 8}) &&
           has_float_scale(scales_) && has_shape(scales_, {groups, n}) &&
           (g_idx_ == nullptr || has_shape(g_idx_, {k}));
  }

  // Tensor and config agree, but for two cases that real files have: a module the config would let
  // be quantised and that is not, and the hybrid, whose config says 16 bits of modules that were
  // replaced by FP8 ones.
  bool check_config() {
    using Claim = ModuleQuant::Claim;
    const std::string format(weight_format_name(source_.format));
    const bool int4 = source_.format == WeightFormat::kInt4Group128;
    const bool fp8 = source_.format == WeightFormat::kFp8Block128;
    if (!int4 && said_.claim == Claim::kQuantised)
      return fault(source_.values,
                   str_cat("is stored as ", format, ", but ", said_.reason, " says 4 bits"));
    if (!int4 && !fp8) return true;
    if (quant_.method() == QuantMethod::kNone)
      return fault(source_.values,
                   str_cat("is ", format, ", but config.json has no quantization_config"));
    if (int4 && !quant_.is_int4())
      return fault(source_.values,
                   str_cat("is ", format, ", but quant_method is ", quant_.method_name()));
    if (said_.claim == Claim::kFloat && (int4 || quant_.method() == QuantMethod::kFp8))
      return fault(source_.values, str_cat("is ", format, ", but ", said_.reason,
                                           " says that it is not quantised"));
    if (int4 && said_.claim == Claim::kForeign)
      return fault(source_.values, said_.reason + ", which is not supported",
                   ErrorCode::kUnsupported);
    if (int4) {
      source_.zero_style = quant_.zero_style();
      source_.has_zeros = !said_.symmetric;
    }
    return true;
  }

  const Checkpoint& checkpoint_;
  const QuantConfig& quant_;
  const LinearRequest& request_;
  Claims& claims_;
  Findings& findings_;
  const ModuleQuant said_;
  const StoredTensor *weight_ = nullptr, *weight_scale_inv_ = nullptr, *qweight_ = nullptr,
                     *qzeros_ = nullptr, *scales_ = nullptr, *g_idx_ = nullptr,
                     *weight_packed_ = nullptr, *weight_scale_ = nullptr;
  bool foreign_ = false;
  LinearSource source_;
};

// The tensor of this name, claimed, or a fault.
const StoredTensor* claim_tensor(const Checkpoint& checkpoint, std::string_view name,
                                 Claims& claims, Findings& findings) {
  const StoredTensor* tensor = checkpoint.find(name);
  if (tensor == nullptr)
    findings.fault("", name, "is missing", ErrorCode::kNotFound);
  else
    claims[static_cast<size_t>(tensor->id)] = true;
  return tensor;
}

}  // namespace

int64_t LinearSource::file_bytes() const {
  int64_t bytes = 0;
  for (const StoredTensor* part : {scales, zeros, group_index})
    if (part != nullptr) bytes += part->info.bytes();
  if (format == WeightFormat::kInt4Group128) return bytes + n * k / 2;
  return bytes + n * k * dtype_bytes(*values->info.dtype);
}

std::optional<LinearSource> find_linear(const Checkpoint& checkpoint, const QuantConfig& quant,
                                        const LinearRequest& request, Claims& claims,
                                        Findings& findings) {
  return ModuleFinder(checkpoint, quant, request, claims, findings).find();
}

const StoredTensor* find_fused_tensor(const Checkpoint& checkpoint, std::string_view name,
                                      const std::vector<int64_t>& shape, Claims& claims,
                                      Findings& findings) {
  const StoredTensor* tensor = claim_tensor(checkpoint, name, claims, findings);
  if (tensor == nullptr) return nullptr;
  const std::vector<int64_t> transposed = {shape[0], shape[2], shape[1]};
  std::string reason;
  if (!float_format(*tensor))
    reason = str_cat("is ", tensor->info.dtype_text, ", want BF16, F16 or F32");
  else if (tensor->info.shape != shape)
    reason =
        str_cat("has shape ", shape_text(tensor->info.shape), ", want ", shape_text(shape),
                tensor->info.shape == transposed ? ": transposed experts are not supported" : "");
  if (reason.empty()) return tensor;
  findings.fault(checkpoint.file_name(*tensor), tensor->info.name, reason);
  return nullptr;
}

LinearSource fused_slice(const StoredTensor& tensor, int64_t index, int64_t row_begin, int64_t n) {
  const int64_t rows = tensor.info.shape[1], k = tensor.info.shape[2];
  return {.module = tensor.name,
          .format = *float_format(tensor),
          .n = n,
          .k = k,
          .values = &tensor,
          .values_offset = (index * rows + row_begin) * k * dtype_bytes(*tensor.info.dtype)};
}

const StoredTensor* find_vector(const Checkpoint& checkpoint, std::string_view name,
                                const std::vector<std::vector<int64_t>>& shapes, Claims& claims,
                                Findings& findings) {
  const StoredTensor* tensor = claim_tensor(checkpoint, name, claims, findings);
  if (tensor == nullptr) return nullptr;
  if (!float_format(*tensor)) {
    findings.fault(checkpoint.file_name(*tensor), tensor->info.name,
                   str_cat("is ", type_text(*tensor), ", want BF16, F16 or F32"));
    return nullptr;
  }
  if (std::ranges::find(shapes, tensor->info.shape) == shapes.end()) {
    findings.fault(
        checkpoint.file_name(*tensor), tensor->info.name,
        str_cat("has shape ", shape_text(tensor->info.shape), ", want ", shape_text(shapes[0])));
    return nullptr;
  }
  return tensor;
}

}  // namespace pewter
