#include "engine/step_sampler.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "grammar/matcher.h"

namespace pewter {
namespace {

// Words of a row's results: token, log-probability, and kTopLogprobs of each.
constexpr int64_t kResultWords = 2 + 2 * kTopLogprobs;

bool are_same(const SamplingRow& a, const SamplingRow& b) {
  const auto all = [](const SamplingRow& row) {
    return std::tie(row.temperature, row.top_p, row.min_p, row.top_k, row.repetition_penalty,
                    row.presence_penalty, row.frequency_penalty, row.seed, row.index,
                    row.top_logprobs);
  };
  return all(a) == all(b);
}

}  // namespace

Result<StepSampler> StepSampler::make(Device& device, Ops& ops, const Options& options) {
  StepSampler sampler(device, ops);
  const int64_t rows = options.rows;
  const auto count = static_cast<size_t>(rows);
  sampler.vocab_limit_ = options.vocab_limit;
  sampler.host_parameters_.reserve(count);
  sampler.sent_parameters_.reserve(count);
  sampler.host_edit_begin_.reserve(count + 1);
  sampler.sent_edit_begin_.reserve(count + 1);
  sampler.forced_.reserve(count);
  for (Pending& pending : sampler.pending_) pending.results.resize(count * kResultWords);
  sampler.choices_.reserve(count);
  sampler.top_.resize(count * kTopLogprobs);
  sampler.host_inputs_.resize(count * sizeof(SamplingRow) + (count + 1) * sizeof(int32_t));
  TRY_ASSIGN(sampler.inputs_, device.allocate(std::ssize(sampler.host_inputs_)));
  TRY_ASSIGN(sampler.results_, device.allocate(rows * kResultWords * 4));
  TRY(sampler.reserve_edits(rows));
  sampler.rows_ = rows;
  sampler.mask_words_ = options.mask_words;
  sampler.token_mask_ = options.token_mask;
  sampler.has_token_mask_ = !options.token_mask.empty();
  if (sampler.has_token_mask_) TRY(sampler.reserve_masks());
  return sampler;
}

Status StepSampler::reserve_masks() {
  if (masks_.bytes() > 0) return {};
  if (!has_token_mask_) token_mask_.assign(static_cast<size_t>(mask_words_), ~0u);
  TRY_ASSIGN(masks_, device_->allocate(rows_ * mask_words_ * 4));
  row_masks_.resize(static_cast<size_t>(rows_ * mask_words_));
  has_own_mask_.assign(static_cast<size_t>(rows_), 0);
  for (int64_t row = 0; row < rows_; ++row) upload_mask(row, token_mask_);
  return {};
}

void StepSampler::upload_mask(int64_t row, std::span<const uint32_t> mask) {
  device_->copy_to_device(masks_.data() + row * mask_words_ * 4, std::as_bytes(mask));
}

// The row's mask on the host: what the grammar admits where the text stands, and the request.
void StepSampler::set_mask(int64_t row, const Rows& rows) {
  const auto words = static_cast<size_t>(mask_words_);
  const auto mask = std::span(row_masks_).subspan(static_cast<size_t>(row) * words, words);
  const auto allow = [&mask](int32_t token) {
    mask[static_cast<size_t>(token) / 32] |= 1u << token % 32;
  };
  if (rows.matcher != nullptr) {
    rows.matcher->fill_mask(mask);
    if (rows.matcher->is_complete())
      for (const int32_t token : rows.stop_ids) allow(token);
    for (size_t i = 0; i < words; ++i) mask[i] &= token_mask_[i];
  } else {
    std::ranges::copy(token_mask_, mask.begin());
  }
  if (!rows.allowed.empty()) {
    for (size_t i = 0; i < words; ++i) mask[i] &= rows.allowed[i];
    // Reasoning is closed whatever the answer may hold.
    if (const int32_t forced = forced_[static_cast<size_t>(row)]; forced >= 0) allow(forced);
  }
  has_own_mask_[static_cast<size_t>(row)] = 1;
}

bool StepSampler::set_masks(std::span<const Rows> sequences) {
  int64_t row = 0;
  bool any = false;
  for (const Rows& rows : sequences) {
    const int64_t first = row;
    row += rows.count();
    if (rows.matcher == nullptr && rows.allowed.empty()) {
      // A mask that an earlier step left behind.
      for (int64_t i = first; i < row && masks_.bytes() > 0; ++i)
        if (std::exchange(has_own_mask_[static_cast<size_t>(i)], 0) != 0)
          upload_mask(i, token_mask_);
      continue;
    }
    CHECK(masks_.bytes() > 0, "no room for masks was reserved");
    any = true;
    set_mask(first, rows);
    for (size_t i = 0; i < rows.drafts.size(); ++i) {
      if (rows.matcher != nullptr)
        CHECK(rows.matcher->push(rows.drafts[i]), "a draft that the grammar does not allow");
      set_mask(first + 1 + static_cast<int64_t>(i), rows);
    }
    if (rows.matcher != nullptr) rows.matcher->pop(static_cast<int64_t>(rows.drafts.size()));
    const auto words = static_cast<size_t>(mask_words_);
    for (int64_t i = first; i < row; ++i)
      upload_mask(i, std::span(row_masks_).subspan(static_cast<size_t>(i) * words, words));
  }
  return any || has_token_mask_;
}

Status StepSampler::reserve_edits(int64_t edits) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(LogitEdit));
  if (edits * kBytes <= edits_.bytes()) return {};
  const int64_t room = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(edits)));
  TRY_ASSIGN(edits_, device_->allocate(room * kBytes));
  host_edits_.reserve(static_cast<size_t>(room));
  return {};
}

void StepSampler::add_row(const Sampler& sampler, bool ahead) {
  CHECK(!ahead || sampler.is_settled(), "a choice ahead that depends on the one before it");
  SamplingRow parameters = sampler.row();
  parameters.index += ahead ? 1 : 0;
  if (parameters.temperature == 0) parameters.seed = parameters.index = 0;  // nothing is drawn
  host_parameters_.push_back(parameters);
  forced_.push_back(sampler.forced());
  const std::span<const LogitEdit> edits = sampler.edits();
  host_edits_.insert(host_edits_.end(), edits.begin(), edits.end());
  host_edit_begin_.push_back(static_cast<int32_t>(host_edits_.size()));
}

void StepSampler::start(const TensorView& logits, std::span<const Rows> sequences) {
  int64_t n = 0;
  for (const Rows& rows : sequences) n += rows.count();
  CHECK(n <= static_cast<int64_t>(host_parameters_.capacity()), n, " rows to sample");
  host_parameters_.clear();
  host_edits_.clear();
  host_edit_begin_.assign(1, 0);
  forced_.clear();
  for (const Rows& rows : sequences) {
    add_row(*rows.sampler, rows.ahead);
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
  run(logits, vocab_limit_, set_masks(sequences));
}

std::span<const StepSampler::Choice> StepSampler::score(const TensorView& logits,
                                                        std::span<const int32_t> tokens) {
  CHECK(tokens.size() <= host_parameters_.capacity(), tokens.size(), " rows to score");
  // Above whatever a logit can be: the token is what the row chooses.
  constexpr float kForced = 1e9f;
  host_parameters_.assign(tokens.size(), {});
  host_edits_.clear();
  host_edit_begin_.assign(1, 0);
  for (const int32_t token : tokens) {
    host_edits_.push_back({.token = token, .bias = kForced});
    host_edit_begin_.push_back(static_cast<int32_t>(host_edits_.size()));
  }
  run(logits, logits.dim(1), /*masked=*/false);
  return finish();
}

// What every row has, in one copy; none when it is there already.
void StepSampler::send_inputs() {
  if (host_edit_begin_ == sent_edit_begin_ &&
      std::ranges::equal(host_parameters_, sent_parameters_, are_same))
    return;
  sent_parameters_ = host_parameters_;
  sent_edit_begin_ = host_edit_begin_;
  const auto parameters = std::as_bytes(std::span(host_parameters_));
  const auto edit_begin = std::as_bytes(std::span(host_edit_begin_));
  std::ranges::copy(parameters, host_inputs_.begin());
  std::ranges::copy(edit_begin, host_inputs_.begin() + std::ssize(parameters));
  device_->copy_to_device(inputs_.data(),
                          std::span(host_inputs_).first(parameters.size() + edit_begin.size()));
}

void StepSampler::run(const TensorView& logits, int64_t vocab_limit, bool masked) {
  CHECK(started_ - finished_ < std::ssize(pending_), "too many choices under way");
  const auto n = static_cast<int64_t>(host_parameters_.size());
  send_inputs();
  device_->copy_to_device(edits_.data(), std::as_bytes(std::span(host_edits_)));

  auto* const results = reinterpret_cast<int32_t*>(results_.data());
  int32_t* const tops = results + 2 * n;
  ops_->sample({.logits = logits.first(n),
                .vocab_limit = vocab_limit,
                .rows = reinterpret_cast<const SamplingRow*>(inputs_.data()),
                .edits = reinterpret_cast<const LogitEdit*>(edits_.data()),
                .edit_begin = reinterpret_cast<const int32_t*>(
                    inputs_.data() + host_parameters_.size() * sizeof(SamplingRow)),
                .masks = masked ? reinterpret_cast<const uint32_t*>(masks_.data()) : nullptr,
                .token = {results, DType::kI32, {n}},
                .logprob = {results + n, DType::kF32, {n}},
                .top_token = {tops, DType::kI32, {n, kTopLogprobs}},
                .top_logprob = {tops + n * kTopLogprobs, DType::kF32, {n, kTopLogprobs}}});
  // Lists of likeliest tokens are many words, and seldom wanted.
  Pending& pending = pending_[static_cast<size_t>(started_++ % std::ssize(pending_))];
  pending.rows = n;
  pending.listed = std::ranges::any_of(host_parameters_,
                                       [](const SamplingRow& row) { return row.top_logprobs > 0; });
  const std::span<int32_t> host(pending.results.data(),
                                static_cast<size_t>(pending.listed ? n * kResultWords : 2 * n));
  pending.copy = device_->begin_copy_to_host(std::as_writable_bytes(host), results_.data());
}

std::span<const StepSampler::Choice> StepSampler::finish() {
  CHECK(finished_ < started_, "no choices are under way");
  const Pending& pending = pending_[static_cast<size_t>(finished_++ % std::ssize(pending_))];
  device_->finish(pending.copy);
  const std::span<const int32_t> host(pending.results);
  const int64_t n = pending.rows;
  const bool listed = pending.listed;
  const auto word = [&](int64_t i) { return host[static_cast<size_t>(i)]; };
  const auto number = [&](int64_t i) { return std::bit_cast<float>(word(i)); };
  choices_.clear();
  for (int64_t row = 0; row < n; ++row) {
    TopLogprob* const top = top_.data() + row * kTopLogprobs;
    for (int64_t i = 0; listed && i < kTopLogprobs; ++i) {
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
