#include "backend/cpu/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/rng.h"

namespace pewter {
namespace {

// Larger logits first, ties by token id: one order for top-k, top-p and the reported
// log-probabilities.
constexpr auto kByFallingLogit = [](const auto& a, const auto& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
};

// Penalties of the OpenAI and Hugging Face conventions, on a logit that already carries its bias.
float edited_logit(float logit, const LogitEdit& edit, const SamplingRow& row) {
  logit += edit.bias;
  if (edit.seen)
    logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
  if (edit.output_count > 0)
    logit -= row.presence_penalty + row.frequency_penalty * static_cast<float>(edit.output_count);
  return logit;
}

}  // namespace

void HostSampler::reserve(int64_t vocab) {
  candidates_.resize(static_cast<size_t>(vocab));
  weights_.resize(static_cast<size_t>(vocab));
}

void HostSampler::sample(const SampleArgs& args) {
  for (int64_t row = 0; row < args.logits.dim(0); ++row) sample_row(args, row);
}

void HostSampler::write_top_logprobs(const SampleArgs& args, int64_t row, double log_total) {
  const auto* logits = args.logits[row].data_as<float>();
  const int64_t vocab = args.logits.dim(1);
  std::array<Candidate, kTopLogprobs> best;
  size_t count = 0;  // best[0, count) is sorted; a new one is inserted where it belongs
  for (int64_t token = 0; token < vocab; ++token) {
    const Candidate candidate{logits[token], static_cast<int32_t>(token)};
    if (count == best.size() && !kByFallingLogit(candidate, best.back())) continue;
    if (count < best.size()) ++count;
    size_t at = count - 1;
    for (; at > 0 && kByFallingLogit(candidate, best[at - 1]); --at) best[at] = best[at - 1];
    best[at] = candidate;
  }
  auto* tokens = args.top_token[row].data_as<int32_t>();
  auto* logprobs = args.top_logprob[row].data_as<float>();
  for (size_t i = 0; i < best.size(); ++i) {
    tokens[i] = i < count ? best[i].token : -1;
    logprobs[i] = i < count ? static_cast<float>(best[i].logit - log_total) : -INFINITY;
  }
}

void HostSampler::sample_row(const SampleArgs& args, int64_t row) {
  const auto* logits = args.logits[row].data_as<float>();
  const int64_t vocab = args.logits.dim(1);
  const SamplingRow& params = args.rows[row];
  auto& chosen = args.token.data_as<int32_t>()[row];
  auto& logprob = args.logprob.data_as<float>()[row];

  float largest = -INFINITY;
  bool finite = true;
  for (int64_t token = 0; token < vocab; ++token) {
    finite = finite && std::isfinite(logits[token]);
    largest = std::max(largest, logits[token]);
  }
  // The row's answer when no token can be chosen; what lists nothing is -1 at minus infinity.
  const auto give_up = [&] {
    chosen = -1;
    logprob = NAN;
  };
  if (!finite) {
    std::fill_n(args.top_token[row].data_as<int32_t>(), kTopLogprobs, -1);
    std::fill_n(args.top_logprob[row].data_as<float>(), kTopLogprobs, -INFINITY);
    return give_up();
  }
  double total = 0;
  for (int64_t token = 0; token < vocab; ++token)
    total += std::exp(static_cast<double>(logits[token]) - largest);
  const double log_total = std::log(total) + largest;
  if (params.top_logprobs > 0) write_top_logprobs(args, row, log_total);

  // Bias and penalties, then the tokens that may be chosen at all.
  const int64_t limit = std::min(args.vocab_limit, vocab);
  for (int64_t token = 0; token < limit; ++token)
    candidates_[static_cast<size_t>(token)] = {logits[token], static_cast<int32_t>(token)};
  for (int32_t e = args.edit_begin[row]; e < args.edit_begin[row + 1]; ++e) {
    const LogitEdit& edit = args.edits[e];
    if (edit.token < 0 || edit.token >= limit) continue;
    auto& candidate = candidates_[static_cast<size_t>(edit.token)];
    candidate.logit = edited_logit(candidate.logit, edit, params);
  }
  const uint32_t* mask = args.masks == nullptr ? nullptr : args.masks + row * ((vocab + 31) / 32);
  const auto is_banned = [&](const Candidate& candidate) {
    if (candidate.logit == -INFINITY) return true;  // by a bias of minus infinity
    return mask != nullptr && (mask[candidate.token / 32] >> (candidate.token % 32) & 1u) == 0;
  };
  auto end = std::remove_if(candidates_.begin(), candidates_.begin() + limit, is_banned);
  const auto best = std::min_element(candidates_.begin(), end, kByFallingLogit);
  if (best == end) return give_up();  // everything is banned
  const auto finish = [&](int32_t token) {
    chosen = token;
    logprob = static_cast<float>(logits[token] - log_total);
  };
  if (params.temperature <= 0) return finish(best->token);

  const float top = best->logit;
  const auto weight = [&](const Candidate& candidate) {
    return std::exp((static_cast<double>(candidate.logit) - top) / params.temperature);
  };
  if (params.min_p > 0)
    end = std::remove_if(candidates_.begin(), end, [&](const Candidate& candidate) {
      return weight(candidate) < params.min_p;
    });
  if (params.top_k > 0 && params.top_k < end - candidates_.begin()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + params.top_k, end, kByFallingLogit);
    end = candidates_.begin() + params.top_k;
  }
  if (params.top_p < 1 || params.top_k > 0) std::sort(candidates_.begin(), end, kByFallingLogit);
  double sum = 0;
  for (auto it = candidates_.begin(); it != end; ++it)
    sum += weights_[static_cast<size_t>(it - candidates_.begin())] = weight(*it);
  if (params.top_p < 1) {  // the smallest set of the largest whose mass reaches top_p; at least one
    const double wanted = params.top_p * sum;
    double mass = 0;
    auto it = candidates_.begin();
    do mass += weights_[static_cast<size_t>(it++ - candidates_.begin())];
    while (it != end && mass < wanted);
    end = it;
    sum = mass;
  }
  // The draw walks the candidates by falling logit where top-k or top-p sorted them, by id
  // otherwise: orders that any backend can follow.
  double left = random_uniform(params.seed, params.index) * sum;
  auto it = candidates_.begin();
  while (it + 1 != end && (left -= weights_[static_cast<size_t>(it - candidates_.begin())]) >= 0)
    ++it;
  finish(it->token);
}

}  // namespace pewter
