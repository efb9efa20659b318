// The reference's projections: y = x·Wᵀ with double sums, one weight row decoded at a time.

#include "backend/cpu/reference/math.h"
#include "backend/cpu/reference/reference_ops.h"

namespace pewter {

void ReferenceOps::linear(const float* x, int64_t m, const WeightMatrix& w, int64_t index,
                          float* out, int64_t out_stride) {
  for (int64_t i = 0; i < w.n; ++i) {
    decode_row(w, index, i, weight_row_.data());
    for (int64_t r = 0; r < m; ++r) {
      double sum = 0;
      for (int64_t k = 0; k < w.k; ++k)
        sum += static_cast<double>(weight_row_[static_cast<size_t>(k)]) * x[r * w.k + k];
      out[r * out_stride + i] = static_cast<float>(sum);
    }
  }
}

void ReferenceOps::norm_linear(const NormLinearArgs& args) {
  const int64_t m = args.x.dim(0), hidden = args.x.dim(1);
  for (int64_t r = 0; r < m; ++r)
    rms_norm(args.x[r].data_as<float>(), args.norm.data_as<float>(), hidden, args.epsilon,
             NormForm::kOnePlus, normed_.data() + r * hidden);
  int64_t column = 0;
  for (const WeightMatrix* w : args.w) {
    CHECK(w->k == hidden, "projection of ", w->k, " inputs on ", hidden);
    linear(normed_.data(), m, *w, 0, args.out.data_as<float>() + column, args.out.stride(0));
    column += w->n;
  }
  CHECK(column == args.out.dim(1), "outputs ", column, " into ", args.out.dim(1));
}

void ReferenceOps::linear_add(const LinearAddArgs& args) {
  linear(args.x.data_as<float>(), args.x.dim(0), args.w, 0, args.partial.data_as<float>(),
         args.partial.stride(0));
  if (args.residual.defined()) add_residual({.partial = args.partial, .residual = args.residual});
}

void ReferenceOps::mlp_up(const MlpUpArgs& args) {
  const int64_t m = args.x.dim(0), hidden = args.x.dim(1), width = args.gate.n;
  for (int64_t r = 0; r < m; ++r)
    rms_norm(args.x[r].data_as<float>(), args.norm.data_as<float>(), hidden, args.epsilon,
             NormForm::kOnePlus, normed_.data() + r * hidden);
  auto* out = args.out.data_as<float>();
  linear(normed_.data(), m, args.gate, 0, out, width);
  linear(normed_.data(), m, args.up, 0, projected_.data(), width);
  for (int64_t i = 0; i < m * width; ++i)
    out[i] = silu(out[i]) * projected_[static_cast<size_t>(i)];
}

void ReferenceOps::logits(const LogitsArgs& args) {
  const int64_t hidden = args.hidden.dim(1);
  for (int64_t i = 0; i < args.batch.logits_count; ++i)
    std::memcpy(normed_.data() + i * hidden, args.hidden[args.batch.logits_rows[i]].data(),
                static_cast<size_t>(hidden) * sizeof(float));
  linear(normed_.data(), args.batch.logits_count, args.head, 0, args.out.data_as<float>(),
         args.out.stride(0));
}

void ReferenceOps::mtp_combine(const MtpCombineArgs& args) {
  const int64_t m = args.out.dim(0), hidden = args.out.dim(1);
  for (int64_t r = 0; r < m; ++r) {
    float* row = normed_.data() + r * 2 * hidden;  // the embedding's half first
    rms_norm(args.embedding[r].data_as<float>(), args.embedding_norm.data_as<float>(), hidden,
             args.epsilon, NormForm::kOnePlus, row);
    rms_norm(args.hidden[args.hidden_row(r)].data_as<float>(), args.hidden_norm.data_as<float>(),
             hidden, args.epsilon, NormForm::kOnePlus, row + hidden);
  }
  linear(normed_.data(), m, args.fc, 0, args.out.data_as<float>(), args.out.stride(0));
}

}  // namespace pewter
