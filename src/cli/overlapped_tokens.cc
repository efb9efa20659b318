#include "cli/overlapped_tokens.h"

#include <cmath>

#include "backend/batch.h"

namespace pewter {
namespace {

constexpr int64_t kFamilies = 64;  // a family: tokens that share a part
constexpr int64_t kTokens = kFamilies * kMaxDecodeRows;
constexpr double kExponent = 0.74, kTolerance = 0.02;
constexpr int kTrials = 16;

}  // namespace

double overlapped_experts(const ModelConfig& config, int64_t rows) {
  return static_cast<double>(config.experts_per_token) *
         std::pow(static_cast<double>(rows), kExponent);
}

Result<OverlappedTokens> OverlappedTokens::make(Device& device, WeightMatrix& embed) {
  if (embed.format != WeightFormat::kBF16 || embed.n < kTokens)
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("overlapped routing needs an embedding of ", kTokens, " tokens in bf16")};
  return OverlappedTokens(device, embed);
}

Status OverlappedTokens::store(float part) {
  TRY_ASSIGN(const WeightMatrix rows,
             make_canonical_weight({.format = WeightFormat::kBF16, .n = kTokens, .k = embed_->k}));
  Rng rng(11);
  std::vector<float> shared(static_cast<size_t>(embed_->k));
  const float own = std::sqrt(1 - part * part);
  for (int64_t token = 0; token < kTokens; ++token) {
    if (token % kMaxDecodeRows == 0)
      for (float& x : shared) x = rng.normal();
    for (int64_t i = 0; i < embed_->k; ++i)
      store_float(rows.values.data(), DType::kBF16, token * embed_->k + i,
                  part * shared[static_cast<size_t>(i)] + own * rng.normal());
  }
  device_->store_rows(*embed_, 0, 0, rows);
  return {};
}

Status OverlappedTokens::tune(double wanted, const std::function<double()>& distinct) {
  float least = 0, most = 1;  // more in common: fewer experts
  double counted = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const float part = (least + most) / 2;
    TRY(store(part));
    counted = distinct();
    if (std::abs(counted - wanted) <= kTolerance * wanted) return {};
    (counted > wanted ? least : most) = part;
  }
  return Error{ErrorCode::kInternal, str_cat("no overlap of tokens gives ", wanted,
                                             " experts a layer; the nearest gives ", counted)};
}

void OverlappedTokens::pick(Rng& rng, std::span<int32_t> tokens) const {
  CHECK(std::ssize(tokens) <= kMaxDecodeRows, tokens.size(), " tokens of a family");
  const auto first =
      static_cast<int32_t>(rng.below(kFamilies)) * static_cast<int32_t>(kMaxDecodeRows);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = first + static_cast<int32_t>(i);
}

}  // namespace pewter
