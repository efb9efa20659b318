#include "engine/sampler.h"

#include <algorithm>
#include <cmath>

namespace pewter {
namespace {

Status in_range(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return {};  // NaN fails
  return Error{ErrorCode::kInvalidArgument,
               str_cat(field, ": ", value, " is outside [", low, ", ", high, "]")};
}

}  // namespace

Status SamplingParams::validate(int64_t vocab_size) const {
  TRY(in_range("temperature", temperature, 0, 100));
  TRY(in_range("top_k", top_k, -1, INT32_MAX));
  TRY(in_range("top_p", top_p, 0, 1));
  if (top_p == 0) return Error{ErrorCode::kInvalidArgument, "top_p: must be above 0"};
  TRY(in_range("min_p", min_p, 0, 1));
  TRY(in_range("repetition_penalty", repetition_penalty, 1e-3, 1e3));
  TRY(in_range("presence_penalty", presence_penalty, -2, 2));
  TRY(in_range("frequency_penalty", frequency_penalty, -2, 2));
  for (const auto& [token, bias] : logit_bias) {
    if (token < 0 || token >= vocab_size)
      return Error{
          ErrorCode::kInvalidArgument,
          str_cat("logit_bias: token id ", token, " is not in the vocabulary of ", vocab_size)};
    TRY(in_range("logit_bias", bias, -100, 100));
  }
  return {};
}

Sampler::Sampler(const Request& request, uint64_t seed)
    : params_(request.sampling),
      stop_ids_(request.stop_ids),
      ignore_stop_(request.ignore_stop),
      min_tokens_(request.min_tokens),
      seed_(request.sampling.seed.value_or(seed)),
      tracks_output_(params_.repetition_penalty != 1 || params_.presence_penalty != 0 ||
                     params_.frequency_penalty != 0) {
  for (const auto& [token, bias] : params_.logit_bias) edit_of(token).bias += bias;
  if (params_.repetition_penalty != 1)
    for (const int32_t token : request.prompt) edit_of(token).seen = true;
  suppress_stops();
  if (tracks_output_)
    edits_.reserve(edits_.size() + static_cast<size_t>(std::max<int64_t>(request.max_tokens, 0)));
}

LogitEdit& Sampler::edit_of(int32_t token) {
  const auto [at, added] = edit_index_.try_emplace(token, edits_.size());
  if (added) edits_.push_back({.token = token});
  return edits_[at->second];
}

// Stop ids get a bias of minus infinity while they must not be chosen. Their own bias, if any,
// comes back after.
void Sampler::suppress_stops() {
  const bool suppress = ignore_stop_ || generated_ < min_tokens_;
  if (suppress == stops_suppressed_) return;
  stops_suppressed_ = suppress;
  for (const int32_t token : stop_ids_) {
    float bias = 0;
    for (const auto& [biased, value] : params_.logit_bias)
      if (biased == token) bias += value;
    edit_of(token).bias = suppress ? -INFINITY : bias;
  }
}

SamplingRow Sampler::row() const {
  return {.temperature = params_.temperature,
          .top_p = params_.top_p,
          .min_p = params_.min_p,
          .top_k = std::max(params_.top_k, 0),
          .repetition_penalty = params_.repetition_penalty,
          .presence_penalty = params_.presence_penalty,
          .frequency_penalty = params_.frequency_penalty,
          .seed = seed_,
          .index = static_cast<uint64_t>(generated_)};
}

void Sampler::push(int32_t token) {
  ++generated_;
  if (tracks_output_) {
    LogitEdit& edit = edit_of(token);
    edit.seen = params_.repetition_penalty != 1;
    ++edit.output_count;
  }
  suppress_stops();
}

}  // namespace pewter
