#include "engine/step_sampler.h"

#include <bit>

namespace pewter {
namespace {

// Words of a row's results: token, log-probability, and kTopLogprobs of each.
constexpr int64_t kResultWords = 2 + 2 * kTopLogprobs;

template <typename T>
void upload(Device& device, const Buffer& to, const std::vector<T>& from) {
  device.copy_to_device(to.data(), std::as_bytes(std::span(from)));
}

}  // namespace

Result<StepSampler> StepSampler::make(Device& device, Ops& ops, const Options& options) {
  StepSampler sampler(device, ops);
  const int64_t rows = options.rows;
  const auto count = static_cast<size_t>(rows);
  sampler.vocab_limit_ = options.vocab_limit;
  sampler.host_parameters_.reserve(count);
  sampler.host_edit_begin_.reserve(count + 1);
  sampler.host_results_.resize(count * kResultWords);
  sampler.choices_.reserve(count);
  sampler.top_.resize(count * kTopLogprobs);
  TRY_ASSIGN(sampler.parameters_,
             device.allocate(rows * static_cast<int64_t>(sizeof(SamplingRow))));
  TRY_ASSIGN(sampler.edit_begin_, device.allocate((rows + 1) * 4));
  TRY_ASSIGN(sampler.results_, device.allocate(rows * kResultWords * 4));
  TRY(sampler.reserve_edits(1));
  if (!options.token_mask.empty()) {
    const auto bytes = static_cast<int64_t>(options.token_mask.size()) * 4;
    TRY_ASSIGN(sampler.masks_, device.allocate(rows * bytes));
    for (int64_t row = 0; row < rows; ++row)
      device.copy_to_device(sampler.masks_.data() + row * bytes,
                            std::as_bytes(std::span(options.token_mask)));
  }
  return sampler;
}

Status StepSampler::reserve_edits(int64_t edits) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(LogitEdit));
  if (edits * kBytes <= edits_.bytes()) return {};
  const int64_t room = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(edits)));
  TRY_ASSIGN(edits_, device_->allocate(room * kBytes));
  host_edits_.reserve(static_cast<size_t>(room));
  return {};
}

void StepSampler::add_row(const Sampler& sampler) {
  host_parameters_.push_back(sampler.row());
  const std::span<const LogitEdit> edits = sampler.edits();
  host_edits_.insert(host_edits_.end(), edits.begin(), edits.end());
  host_edit_begin_.push_back(static_cast<int32_t>(host_edits_.size()));
}

std::span<const StepSampler::Choice> StepSampler::sample(const TensorView& logits,
                                                         std::span<const Rows> sequences) {
  int64_t n = 0;
  for (const Rows& rows : sequences) n += rows.count();
  CHECK(n <= static_cast<int64_t>(host_parameters_.capacity()), n, " rows to sample");
  host_parameters_.clear();
  host_edits_.clear();
  host_edit_begin_.assign(1, 0);
  for (const Rows& rows : sequences) {
    add_row(*rows.sampler);
    if (rows.drafts.empty()) continue;
    if (!ahead_) ahead_ = *rows.sampler;
    ahead_->follow(*rows.sampler);
    for (const int32_t draft : rows.drafts) {
      ahead_->push(draft);
      add_row(*ahead_);
    }
  }
  CHECK(static_cast<int64_t>(host_edits_.size() * sizeof(LogitEdit)) <= edits_.bytes(),
        host_edits_.size(), " edits exceed what was reserved");
  upload(*device_, parameters_, host_parameters_);
  upload(*device_, edit_begin_, host_edit_begin_);
  upload(*device_, edits_, host_edits_);

  auto* const results = reinterpret_cast<int32_t*>(results_.data());
  int32_t* const tops = results + 2 * n;
  ops_->sample({.logits = logits.first(n),
                .vocab_limit = vocab_limit_,
                .rows = reinterpret_cast<const SamplingRow*>(parameters_.data()),
                .edits = reinterpret_cast<const LogitEdit*>(edits_.data()),
                .edit_begin = reinterpret_cast<const int32_t*>(edit_begin_.data()),
                .masks = reinterpret_cast<const uint32_t*>(masks_.data()),
                .token = {results, DType::kI32, {n}},
                .logprob = {results + n, DType::kF32, {n}},
                .top_token = {tops, DType::kI32, {n, kTopLogprobs}},
                .top_logprob = {tops + n * kTopLogprobs, DType::kF32, {n, kTopLogprobs}}});
  const std::span<int32_t> host(host_results_.data(), static_cast<size_t>(n * kResultWords));
  device_->copy_to_host(std::as_writable_bytes(host), results_.data());

  const auto word = [&](int64_t i) { return host[static_cast<size_t>(i)]; };
  const auto number = [&](int64_t i) { return std::bit_cast<float>(word(i)); };
  choices_.clear();
  for (int64_t row = 0; row < n; ++row) {
    TopLogprob* const top = top_.data() + row * kTopLogprobs;
    for (int64_t i = 0; i < kTopLogprobs; ++i) {
      const int64_t at = 2 * n + row * kTopLogprobs + i;
      top[i] = {word(at), number(at + n * kTopLogprobs)};
    }
    choices_.push_back({.token = word(row),
                        .logprob = number(n + row),
                        .top = {top, static_cast<size_t>(kTopLogprobs)}});
  }
  return choices_;
}

}  // namespace pewter
