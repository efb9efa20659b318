#include "engine/greedy_chooser.h"

namespace pewter {
namespace {

// Words of a row's results: token, log-probability, and kTopLogprobs of each.
constexpr int64_t kResultWords = 2 + 2 * kTopLogprobs;

}  // namespace

Result<GreedyChooser> GreedyChooser::make(Device& device, Ops& ops, int64_t rows,
                                          int64_t vocab_limit) {
  GreedyChooser chooser(device, ops);
  chooser.vocab_limit_ = vocab_limit;
  const std::vector<SamplingRow> parameters(static_cast<size_t>(rows),
                                            {.temperature = 0, .top_logprobs = 0});
  TRY_ASSIGN(chooser.parameters_,
             device.allocate(rows * static_cast<int64_t>(sizeof(SamplingRow))));
  device.copy_to_device(chooser.parameters_.data(), std::as_bytes(std::span(parameters)));
  TRY_ASSIGN(chooser.edit_begin_, device.allocate((rows + 1) * 4));  // zeroed
  TRY_ASSIGN(chooser.no_edits_, device.allocate(sizeof(LogitEdit)));
  TRY_ASSIGN(chooser.results_, device.allocate(rows * kResultWords * 4));
  chooser.tokens_.resize(static_cast<size_t>(rows));
  return chooser;
}

void GreedyChooser::choose(const TensorView& logits) const {
  const int64_t n = logits.dim(0);
  CHECK(n <= std::ssize(tokens_), n, " rows to choose for");
  std::byte* at = results_.data();
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
                .token = take(DType::kI32, {n}),
                .logprob = take(DType::kF32, {n}),
                .top_token = take(DType::kI32, {n, kTopLogprobs}),
                .top_logprob = take(DType::kF32, {n, kTopLogprobs})});
}

std::span<const int32_t> GreedyChooser::tokens(int64_t rows) {
  const std::span<int32_t> host(tokens_.data(), static_cast<size_t>(rows));
  device_->copy_to_host(std::as_writable_bytes(host), results_.data());
  return host;
}

}  // namespace pewter
