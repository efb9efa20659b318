#include "engine/greedy_chooser.h"

#include <atomic>

namespace pewter {
namespace {

// Words of a row's results beside its token: log-probability, and kTopLogprobs of each.
constexpr int64_t kBesides = 1 + 2 * kTopLogprobs;

std::atomic<uint64_t> choosers{0};  // made so far

}  // namespace

Result<GreedyChooser> GreedyChooser::make(Device& device, Ops& ops, const Options& options) {
  GreedyChooser chooser(device, ops);
  const int64_t rows = options.rows;
  chooser.id_ = ++choosers;
  chooser.vocab_limit_ = options.vocab_limit;
  chooser.rows_ = rows;
  const std::vector<SamplingRow> parameters(static_cast<size_t>(rows),
                                            {.temperature = 0, .top_logprobs = 0});
  TRY_ASSIGN(chooser.parameters_,
             device.allocate(rows * static_cast<int64_t>(sizeof(SamplingRow))));
  device.copy_to_device(chooser.parameters_.data(), std::as_bytes(std::span(parameters)));
  TRY_ASSIGN(chooser.edit_begin_, device.allocate((rows + 1) * 4));  // zeroed
  TRY_ASSIGN(chooser.no_edits_, device.allocate(sizeof(LogitEdit)));
  TRY_ASSIGN(chooser.besides_, device.allocate(rows * kBesides * 4));
  TRY_ASSIGN(chooser.choices_, device.allocate(options.choices * 4));
  chooser.chosen_.choices = {chooser.choices_.data(), DType::kI32, {options.choices}};
  chooser.tokens_.resize(static_cast<size_t>(options.choices));
  if (options.ids.empty()) return chooser;
  chooser.ids_.assign(options.ids.begin(), options.ids.end());
  const auto ids = std::as_bytes(std::span(chooser.ids_));
  TRY_ASSIGN(chooser.ids_there_, device.allocate(std::ssize(ids)));
  device.copy_to_device(chooser.ids_there_.data(), ids);
  chooser.chosen_.ids = {chooser.ids_there_.data(), DType::kI32, {std::ssize(chooser.ids_)}};
  return chooser;
}

void GreedyChooser::choose(const TensorView& logits, int64_t first) {
  const int64_t n = logits.dim(0);
  CHECK(n <= rows_ && first + n <= std::ssize(tokens_), n, " rows to choose for, behind ", first);
  std::byte* at = besides_.data();
  const auto take = [&](DType dtype, std::initializer_list<int64_t> shape) {
    const TensorView view(at, dtype, shape);
    at += view.bytes();
    return view;
  };
  ops_->sample({.logits = logits,
                .vocab_limit = vocab_limit_,
                .rows = reinterpret_cast<const SamplingRow*>(parameters_.data()),
                .edits = reinterpret_cast<const LogitEdit*>(no_edits_.data()),
                .edit_begin = reinterpret_cast<const int32_t*>(edit_begin_.data()),
                .token = chosen_.choices.slice(0, first, first + n),
                .logprob = take(DType::kF32, {n}),
                .top_token = take(DType::kI32, {n, kTopLogprobs}),
                .top_logprob = take(DType::kF32, {n, kTopLogprobs})});
}

void GreedyChooser::read(int64_t count) {
  reading_ = count;
  const std::span<int32_t> host(tokens_.data(), static_cast<size_t>(count));
  copy_ = device_->begin_copy_to_host(std::as_writable_bytes(host), choices_.data());
}

std::span<const int32_t> GreedyChooser::tokens() {
  const std::span<int32_t> host(tokens_.data(), static_cast<size_t>(reading_));
  device_->finish(copy_);
  if (!ids_.empty())
    for (int32_t& token : host)
      if (token >= 0) token = ids_[static_cast<size_t>(token)];
  return host;
}

}  // namespace pewter
