#include "backend/cpu/reference/reference_ops.h"

#include <algorithm>

#include "backend/cpu/embed_token.h"
#include "backend/cpu/reference/math.h"

namespace pewter {

int64_t ReferenceOps::scratch_bytes(const OpsLimits& limits) const {
  // The two large ones of reserve(), and the sampler's.
  return 4 * (limits.rows * limits.widest_input +
              std::max(limits.rows, limits.logits_rows) * limits.widest_output) +
         HostSampler::reserved_bytes(limits.widest_output);
}

Status ReferenceOps::reserve(const OpsLimits& limits) {
  const auto size = [](int64_t n) { return static_cast<size_t>(n); };
  normed_.resize(size(limits.rows * limits.widest_input));
  projected_.resize(size(std::max(limits.rows, limits.logits_rows) * limits.widest_output));
  weight_row_.resize(size(std::max(limits.widest_input, limits.head_dim)));
  experts_.resize(size(
      std::max({limits.experts, limits.expert_width, limits.shared_width, limits.widest_output})));
  chunk_.resize(size(limits.delta_channels + limits.value_dim));
  gates_.resize(size(std::max(limits.rows, kMaxDecodeRows) * 2 * limits.value_heads));
  state_copy_.resize(size(limits.value_heads * limits.key_dim * limits.value_dim));
  sampler_.reserve(limits.widest_output);
  return {};
}

void ReferenceOps::embed(const EmbedArgs& args) {
  const int64_t hidden = args.out.dim(1);
  auto* out = args.out.data_as<float>();
  for (int64_t r = 0; r < args.batch.rows; ++r) {
    const int32_t given =
        args.batch.embedding_index != nullptr ? args.batch.embedding_index[r] : -1;
    if (given >= 0)
      std::memcpy(out + r * hidden, args.batch.embeddings[given].data(),
                  static_cast<size_t>(hidden) * sizeof(float));
    else
      decode_row(args.table, 0, embed_token(args, r), out + r * hidden);
  }
}

void ReferenceOps::add_residual(const AddResidualArgs& args) {
  const auto* partial = args.partial.data_as<float>();
  auto* residual = args.residual.data_as<float>();
  for (int64_t i = 0; i < args.residual.elements(); ++i) residual[i] += partial[i];
}

void ReferenceOps::final_norm(const FinalNormArgs& args) {
  const int64_t hidden = args.x.dim(1);
  for (int64_t r = 0; r < args.x.dim(0); ++r)
    rms_norm(args.x[r].data_as<float>(), args.norm.data_as<float>(), hidden, args.epsilon,
             NormForm::kOnePlus, args.out[r].data_as<float>());
}

void ReferenceOps::copy(const CopyArgs& args) {
  CHECK(args.from.bytes() == args.to.bytes(), "copy between different sizes");
  std::memcpy(args.to.data(), args.from.data(), static_cast<size_t>(args.from.bytes()));
}

void ReferenceOps::sample(const SampleArgs& args) { sampler_.sample(args); }

}  // namespace pewter
