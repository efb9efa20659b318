#include "engine/dflash_drafter.h"

#include <algorithm>

namespace pewter {
namespace {

// Rows of the largest step: those of its context and of its blocks.
DflashActivations::Sizes sizes_of(const RunnerOptions& options) {
  const int64_t block_rows = options.max_sequences * options.decode_rows;
  return {.context_rows = std::max(options.chunk_rows, block_rows), .block_rows = block_rows};
}

StepBatch::Sizes context_sizes(const RunnerOptions& options) {
  return {.rows = sizes_of(options).context_rows,
          .sequences = options.max_sequences,
          .logits_rows = 0,
          .pages = pages_for(options.cache_tokens)};
}
StepBatch::Sizes block_sizes(const RunnerOptions& options) {
  return {.rows = sizes_of(options).block_rows,
          .sequences = options.max_sequences,
          .logits_rows = sizes_of(options).block_rows,
          .pages = pages_for(options.cache_tokens)};
}
StepBatch::Sizes whole_block_sizes(const RunnerOptions& options) {
  StepBatch::Sizes sizes = block_sizes(options);
  sizes.sequences = sizes.rows;
  return sizes;
}

WaitingRows::Sizes waiting_sizes(const DflashConfig& config, DType activation,
                                 const RunnerOptions& options) {
  return {.slots = options.max_sequences,
          .planes = std::ssize(config.taps),
          .width = config.hidden_size,
          .dtype = activation};
}

// A cache of the drafter's shape.
ModelConfig cache_shape(const DflashConfig& config) {
  ModelConfig shape;
  shape.kv_heads = config.kv_heads;
  shape.head_dim = config.head_dim;
  return shape;
}

}  // namespace

RunnerMemory DflashDrafter::memory(const DflashConfig& config, const Device& device, const Ops& ops,
                                   const RunnerOptions& options) {
  const KvCache::Format format{.keys = ops.kv_format(), .values = ops.kv_format()};
  DflashActivations act;
  const int64_t words = context_sizes(options).words() + block_sizes(options).words() +
                        whole_block_sizes(options).words();
  return {.kv_bytes = pages_for(options.cache_tokens) *
                      KvCache::page_bytes(device, cache_shape(config), format, config.layers),
          .scratch_bytes = act.lay_out(config, ops.activation_dtype(), sizes_of(options), nullptr) +
                           waiting_sizes(config, ops.activation_dtype(), options).bytes() +
                           4 * words};
}

Result<std::unique_ptr<Drafter>> DflashDrafter::make(std::shared_ptr<const DflashModel> model,
                                                     ModelRunner& runner, Device& device,
                                                     Ops& ops) {
  if (!model)
    return Error{ErrorCode::kNotFound,
                 "speculation with dflash needs a drafter: the directory of a DFlashDraftModel"};
  TRY(model->config.check_target(runner.model().config));
  CHECK(runner.model().taps == model->config.taps,
        "the target keeps other layers than the drafter "
        "reads");
  std::unique_ptr<DflashDrafter> drafter(new DflashDrafter(std::move(model), runner, device, ops));
  TRY(drafter->allocate());
  return std::unique_ptr<Drafter>(std::move(drafter));
}

Status DflashDrafter::allocate() {
  const RunnerOptions& options = runner_.options();
  const KvCache::Format format{.keys = ops_.kv_format(), .values = ops_.kv_format()};
  const DType activation = ops_.activation_dtype();
  const DflashActivations::Sizes sizes = sizes_of(options);
  TRY_ASSIGN(kv_, KvCache::make(device_, cache_shape(model_->config), format, model_->config.layers,
                                pages_for(options.cache_tokens)));
  TRY_ASSIGN(memory_, device_.allocate(act_.lay_out(model_->config, activation, sizes, nullptr)));
  act_.lay_out(model_->config, activation, sizes, memory_.data());
  std::vector<std::byte> gates(static_cast<size_t>(act_.gates.bytes()));
  for (int64_t i = 0; i < act_.gates.elements(); ++i)
    store_float(gates.data(), activation, i, DflashModel::kOpenGate);
  device_.copy_to_device(act_.gates.data(), gates);
  TRY_ASSIGN(context_, StepBatch::make(device_, context_sizes(options)));
  TRY_ASSIGN(block_, StepBatch::make(device_, block_sizes(options)));
  TRY_ASSIGN(whole_block_, StepBatch::make(device_, whole_block_sizes(options)));
  const ModelWeights& target = runner_.model().weights;
  TRY_ASSIGN(chooser_, GreedyChooser::make(device_, ops_,
                                           {.rows = sizes.block_rows,
                                            .choices = sizes.block_rows,
                                            .vocab_limit = target.drafting_head().n,
                                            .ids = target.drafted_ids()}));
  TRY_ASSIGN(waiting_,
             WaitingRows::make(device_, waiting_sizes(model_->config, activation, options)));
  const auto rows = static_cast<size_t>(sizes.block_rows);
  block_tokens_.assign(rows, model_->config.mask_token_id);
  rows_.reserve(rows);
  positions_.reserve(rows);
  return {};
}

DflashDrafter::~DflashDrafter() { device_.forget_steps(this); }

void DflashDrafter::take_taps(int64_t from, int64_t rows, int64_t to) {
  for (size_t i = 0; i < act_.taps.size(); ++i)
    take_tap(ops_, *model_, runner_.tap(i, from, rows), act_.taps[i].slice(0, to, to + rows));
}

void DflashDrafter::fill(Phase phase, std::span<const SequenceRows> rows,
                         std::span<const int64_t> positions) {
  const Batch& batch = context_.fill(phase, rows, positions);
  const auto step = [&] { fill_dflash(ops_, *model_, batch, kv_, act_); };
  if (phase == Phase::kPrefill) return step();
  const auto key = (uint64_t{1} << 62) | (static_cast<uint64_t>(batch.rows) << 20) |
                   static_cast<uint64_t>(batch.sequences);
  device_.run_step(this, key, step);
}

void DflashDrafter::read(SequenceState& state, std::span<const int32_t> prompt, int64_t begin) {
  const int64_t rows = state.length - begin;
  take_taps(0, rows, 0);
  const SequenceRows chunk{
      .sequence = &state,
      .tokens = prompt.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)),
      .logits = LogitsWanted::kNone};
  fill(Phase::kPrefill, std::span(&chunk, 1), std::span(&begin, 1));
}

Status DflashDrafter::begin(const SequenceState& state, int64_t) {
  waiting_->clear(state.slot);
  return {};
}

void DflashDrafter::put_off(const DraftSequence& sequence) {
  const int32_t slot = sequence.state->slot;
  for (size_t i = 0; i < act_.taps.size(); ++i)
    take_tap(ops_, *model_, runner_.tap(i, sequence.first_row, sequence.rows),
             waiting_->next(slot, static_cast<int64_t>(i), sequence.rows));
  waiting_->add(slot, sequence.rows);
}

void DflashDrafter::follow(const DraftSequence& sequence) {
  const int32_t slot = sequence.state->slot;
  const int64_t waiting = waiting_->count(slot), rows = waiting + sequence.rows;
  if (context_rows_ + rows > sizes_of(runner_.options()).context_rows) follow_all();
  for (size_t i = 0; waiting > 0 && i < act_.taps.size(); ++i)
    ops_.copy({.from = waiting_->rows(slot, static_cast<int64_t>(i)),
               .to = act_.taps[i].slice(0, context_rows_, context_rows_ + waiting)});
  take_taps(sequence.first_row, sequence.rows, context_rows_ + waiting);
  waiting_->clear(slot);
  context_rows_ += rows;
  // The tokens are not looked at: rows of context are the target's outputs.
  rows_.push_back({.sequence = sequence.state,
                   .tokens = sequence.tokens.last(static_cast<size_t>(rows)),
                   .logits = LogitsWanted::kNone});
  positions_.push_back(sequence.state->length - rows);
}

void DflashDrafter::follow_all() {
  if (!rows_.empty()) fill(Phase::kDecode, rows_, positions_);
  rows_.clear();
  positions_.clear();
  context_rows_ = 0;
}

// The last row of a prompt is read twice.
bool DflashDrafter::start(std::span<const DraftSequence> sequences) {
  rows_.clear();
  positions_.clear();
  context_rows_ = 0;
  for (const DraftSequence& sequence : sequences) {
    if (sequence.most == 0 && waiting_->has_room(sequence.state->slot, sequence.rows))
      put_off(sequence);
    else
      follow(sequence);
  }
  follow_all();
  draft_blocks(sequences);
  return false;
}

void DflashDrafter::fill_batches(std::span<const DraftSequence> sequences) {
  rows_.clear();
  int64_t row = 0;
  for (const DraftSequence& sequence : sequences) {
    if (sequence.most <= 0) continue;
    CHECK(sequence.most <= model_->config.most_drafts(), sequence.most, " drafts of a block of ",
          model_->config.block_size);
    const auto tokens =
        std::span(block_tokens_)
            .subspan(static_cast<size_t>(row), static_cast<size_t>(sequence.most) + 1);
    std::ranges::fill(tokens, model_->config.mask_token_id);
    tokens.front() = sequence.tokens.back();
    rows_.push_back(
        {.sequence = sequence.state, .tokens = tokens, .logits = LogitsWanted::kAllButFirst});
    row += std::ssize(tokens);
  }
}

// Attention without a window has faster kernels.
bool DflashDrafter::slides_over(std::span<const DraftSequence> sequences) const {
  int64_t longest = 0;
  for (const DraftSequence& sequence : sequences)
    if (sequence.most > 0) longest = std::max(longest, sequence.state->length + 1 + sequence.most);
  return std::ranges::any_of(model_->config.layer_kinds, [longest](const DflashLayerKind& kind) {
    return kind.window > 0 && kind.window < longest;
  });
}

void DflashDrafter::draft_blocks(std::span<const DraftSequence> sequences) {
  fill_batches(sequences);
  if (rows_.empty()) return;
  const Batch& block = block_.fill(Phase::kDecode, rows_);
  rows_.clear();
  positions_.clear();
  for (const DraftSequence& sequence : sequences)
    for (int64_t i = 0; sequence.most > 0 && i <= sequence.most; ++i) {
      rows_.push_back({.sequence = sequence.state,
                       .tokens = std::span(block_tokens_).first(1),
                       .logits = LogitsWanted::kNone});
      positions_.push_back(sequence.state->length + sequence.most);
    }
  const Batch& whole_block = whole_block_.fill(Phase::kDecode, rows_, positions_);
  const ModelWeights& target = runner_.model().weights;
  const WeightMatrix& head = target.drafting_head();
  const TensorView logits(runner_.logits_memory(block.logits_count).data(), DType::kF32,
                          {block.logits_count, head.n});
  const bool slides = slides_over(sequences);
  const auto key = (static_cast<uint64_t>(slides) << 61) |
                   (static_cast<uint64_t>(block.rows) << 20) |
                   static_cast<uint64_t>(block.sequences);
  const auto step = [&] {
    draft_dflash(ops_, *model_, {.block = block, .whole_block = whole_block, .slides = slides},
                 {.embed = target.embed, .head = head}, kv_, act_, logits);
    chooser_->choose(logits, 0);
  };
  device_.run_step(this, key, std::cref(step));  // by reference: without allocating
  chooser_->read(logits.dim(0));
  std::span<const int32_t> chosen = chooser_->tokens();
  for (const DraftSequence& sequence : sequences) {
    if (sequence.most <= 0) continue;
    for (const int32_t guess : chosen.first(static_cast<size_t>(sequence.most))) {
      if (guess < 0) break;  // not finite
      sequence.drafts->push_back(guess);
    }
    chosen = chosen.subspan(static_cast<size_t>(sequence.most));
  }
}

}  // namespace pewter
