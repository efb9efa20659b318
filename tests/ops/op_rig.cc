#include "ops/op_rig.h"

#include <cstring>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/reference/reference_ops.h"
#include "ops/device_ops.h"
#include "tensor/formats/fp8_block128.h"
#include "tensor/formats/int4_group128.h"
#include "tensor/formats/int8_row.h"

namespace pewter::test {

namespace {

// The device that holds all weights of GPU cases, or the error.
const Result<Backend>& cuda_backend() {
  static const Result<Backend> backend = make_backend({.device = "cuda"});
  return backend;
}

}  // namespace

std::vector<Target> cuda_target() {
  for (const std::string_view name : backend_names())
    if (name == "cuda") return {Target::kCuda};
  return {};
}

const std::string& why_unusable(Target target) {
  static const std::string nothing,
      reason = cuda_backend() ? nothing : cuda_backend().error().message;
  return target == Target::kCuda ? reason : nothing;
}

OpsLimits test_limits(Target target) {
  OpsLimits limits{.rows = 600,
                   .sequences = 8,
                   .logits_rows = 130,
                   .widest_input = 2304,
                   .widest_output = 1100,
                   .experts = 16,
                   .top_k = 4,
                   .expert_width = 256,
                   .shared_width = 256,
                   .delta_channels = 2048,
                   .key_heads = 4,
                   .value_heads = 8,
                   .key_dim = 128,
                   .value_dim = 128,
                   .query_heads = 16,
                   .kv_heads = 2,
                   .head_dim = 256};
  if (target == Target::kCpu) return limits;
  limits.widest_input = 8192;
  limits.widest_output = kLargeVocabulary;
  limits.experts = 256;
  limits.top_k = 8;
  limits.expert_width = limits.shared_width = 1024;
  limits.delta_channels = 12288;
  limits.key_heads = 16;
  limits.value_heads = 64;
  limits.query_heads = 32;
  limits.cache_positions = 262144;
  return limits;
}

std::unique_ptr<Ops> make_reference(int64_t vocabulary) {
  auto ops = std::make_unique<ReferenceOps>();
  OpsLimits limits = test_limits(Target::kCuda);               // the larger ones
  limits.widest_output = std::max<int64_t>(vocabulary, 4096);  // the widest hidden size of a case
  if (vocabulary > 0) limits.rows = limits.logits_rows = 1;    // only sample has so many outputs
  CHECK(ops->reserve(limits).has_value(), "reserve");
  return ops;
}
std::unique_ptr<Ops> make_fast(Target target, int threads) {
  std::unique_ptr<Ops> ops;
  if (target == Target::kCpu)
    ops = std::make_unique<CpuOps>(threads);
  else
    ops = std::make_unique<DeviceOps>(make_backend({.device = "cuda"}).value());
  CHECK(ops->reserve(test_limits(target)).has_value(), "reserve");
  return ops;
}
bool is_fast_cpu(const Ops& ops) { return dynamic_cast<const CpuOps*>(&ops) != nullptr; }

Tensor Tensor::zeros(DType dtype, std::initializer_list<int64_t> shape) {
  Tensor tensor{.view = TensorView(nullptr, dtype, shape)};
  tensor.memory = Buffer::host(std::max<int64_t>(tensor.view.bytes(), 1)).value();
  std::memset(tensor.memory.data(), 0, static_cast<size_t>(tensor.view.bytes()));
  tensor.view = TensorView(tensor.memory.data(), dtype, shape);
  return tensor;
}
Tensor Tensor::of(DType dtype, std::initializer_list<int64_t> shape, const Floats& values) {
  Tensor tensor = zeros(dtype, shape);
  CHECK(static_cast<int64_t>(values.size()) == tensor.view.elements(), "values ", values.size());
  for (size_t i = 0; i < values.size(); ++i)
    store_float(tensor.view.data(), dtype, static_cast<int64_t>(i), values[i]);
  return tensor;
}
Floats Tensor::floats() const {
  Floats out(static_cast<size_t>(view.elements()));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = load_float(view.data(), view.dtype(), static_cast<int64_t>(i));
  return out;
}

float round_to_bf16(float x) { return to_float(to_bfloat16(x)); }

Floats random_values(int64_t count, uint64_t seed, float scale) {
  Rng rng(seed);
  Floats out(static_cast<size_t>(count));
  for (float& x : out) x = round_to_bf16(rng.normal() * scale);
  return out;
}

WeightMatrix random_weight(const WeightSpec& spec, uint64_t seed) {
  WeightMatrix w = make_canonical_weight(spec).value();
  const float scale = 1.0f / std::sqrt(static_cast<float>(spec.k));
  for (int64_t index = 0; index < spec.count; ++index) {
    const Floats matrix =
        random_values(spec.n * spec.k, seed + static_cast<uint64_t>(index) * 7919, scale);
    const TensorView values = w.values[index];
    switch (spec.format) {
      case WeightFormat::kF32:
      case WeightFormat::kBF16:
        for (size_t i = 0; i < matrix.size(); ++i)
          store_float(values.data(), values.dtype(), static_cast<int64_t>(i), matrix[i]);
        break;
      case WeightFormat::kF16:  // random bits with the exponents of 2⁻⁶ … 2⁻³
        for (size_t i = 0; i < matrix.size(); ++i) {
          const uint64_t bits = random_bits(seed + static_cast<uint64_t>(index), i);
          values.data_as<Float16>()[i] = {
              static_cast<uint16_t>((bits & 0x8FFFu) | 0x2000u | ((bits >> 20) % 2 << 10))};
        }
        break;
      case WeightFormat::kFp8Block128:
        encode_fp8(matrix.data(), w, index);
        break;
      case WeightFormat::kInt4Group128:
        encode_int4(matrix.data(), w, index);
        break;
      case WeightFormat::kInt8Row:
        encode_int8(matrix.data(), w, index);
        break;
    }
  }
  return w;
}

WeightMatrix stored_weight(const WeightMatrix& canonical, Target target) {
  static CpuDevice panels(CpuDevice::Layout::kPanels);
  Device& device = target == Target::kCpu ? panels : *cuda_backend()->device;
  WeightMatrix stored = device.make_weight(spec_of(canonical)).value();
  for (int64_t index = 0; index < canonical.count; ++index)
    for (int64_t row = 0; row < canonical.n; row += 128) {
      const int64_t end = std::min(row + 128, canonical.n);
      WeightMatrix rows = canonical.at(index);
      rows.n = end - row;
      rows.values = rows.values.slice(1, row, end);
      if (canonical.format == WeightFormat::kFp8Block128) {
        rows.scales = rows.scales.slice(1, row / 128, row / 128 + 1);
      } else if (rows.scales.defined()) {
        rows.scales = rows.scales.slice(1, row, end);
        if (rows.zeros.defined()) rows.zeros = rows.zeros.slice(1, row, end);
      }
      device.store_rows(stored, index, row, rows);
    }
  return stored;
}

std::string spec_name(const WeightSpec& spec) {
  std::string name = str_cat(weight_format_name(spec.format), "_n", spec.n, "_k", spec.k);
  if (spec.format == WeightFormat::kFp8Block128 || spec.format == WeightFormat::kInt4Group128)
    name = str_cat(name, "_", dtype_name(spec.scale_dtype), spec.has_zeros ? "_zeros" : "");
  return name;
}

Floats weight_row(const WeightMatrix& w, int64_t index, int64_t row) {
  Floats out(static_cast<size_t>(w.k));
  decode_row(w, index, row, out.data());
  return out;
}

double norm_of(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return std::sqrt(sum);
}

void expect_close(const Floats& actual, const Floats& expected,
                  const std::function<double(int64_t, double)>& bound, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  int64_t bad = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double limit = bound(static_cast<int64_t>(i), expected[i]);
    if (std::abs(static_cast<double>(actual[i]) - expected[i]) <= limit) continue;  // NaN fails
    if (bad++ < 3)
      ADD_FAILURE() << what << "[" << i << "]: " << actual[i] << ", want " << expected[i] << " ± "
                    << limit;
  }
  EXPECT_EQ(bad, 0) << what << ": of " << actual.size();
}

void expect_same_bits(const float* actual, const float* expected, int64_t count,
                      const std::string& what) {
  int64_t bad = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (std::bit_cast<uint32_t>(actual[i]) == std::bit_cast<uint32_t>(expected[i])) continue;
    if (bad++ == 0)
      ADD_FAILURE() << what << "[" << i << "]: " << actual[i] << ", want the bits of "
                    << expected[i];
  }
  EXPECT_EQ(bad, 0) << what << ": of " << count;
}

}  // namespace pewter::test
