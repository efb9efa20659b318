#include "engine/model_runner.h"

#include <algorithm>
#include <utility>

#include "base/in_range.h"

namespace pewter {
namespace {

int64_t max_step_rows(const RunnerOptions& options) {
  return std::max(options.chunk_rows, options.max_sequences * options.decode_rows);
}

// Sizes that follow from a model and the options.
struct Sizes {
  int64_t rows, sequences, logits_rows, pages;
  ActivationStore::Sizes activations;
  OpsLimits limits;
  StepBatch::Sizes batch() const {
    return {.rows = rows,
            .sequences = sequences + 1,  // one may stand in a step of the MTP layer twice
            .logits_rows = logits_rows,
            .pages = pages,
            .steps = kMaxDecodeRows - 1};
  }

  Sizes(const Qwen35Model& model, const RunnerOptions& options)
      : rows(max_step_rows(options)),
        sequences(options.max_sequences),
        logits_rows(std::max(options.logits_rows, sequences * options.decode_rows)),
        pages(pages_for(options.cache_tokens)),
        activations{.rows = rows,
                    .logits_rows = logits_rows,
                    .taps = static_cast<int64_t>(model.taps.size())},
        limits(model.limits(rows, sequences, logits_rows)) {
    limits.decode_rows = options.decode_rows;
    limits.cache_positions = pages * kPageTokens;
    limits.cover(options.beside);
  }
};

// Of the MTP layer in recordings of chains: of every length for every number of sequences, for one
// of them with every number of rows it may have committed, and behind short contexts and long ones.
int64_t chained_passes(const Qwen35Model& model, const RunnerOptions& options) {
  if (!model.weights.mtp) return 0;
  const int64_t guesses = options.decode_rows - 1;
  const int64_t contexts = options.cache_tokens > kShortContext ? 2 : 1;
  const int64_t firsts =
      contexts * options.decode_rows + std::min(options.max_sequences, kMostChained) - 1;
  return firsts * (guesses * (guesses + 1) / 2);
}

}  // namespace

RunnerMemory ModelRunner::memory(const Qwen35Model& model, const Device& device, const Ops& ops,
                                 const RunnerOptions& options) {
  const KvCache::Format format{.keys = ops.kv_format(), .values = ops.kv_format()};
  const Sizes sizes(model, options);
  const DType activation = ops.activation_dtype();
  return {.kv_bytes =
              sizes.pages * KvCache::page_bytes(device, model.config, format, model.kv_layers()),
          .state_bytes = sizes.sequences * RecurrentState::slot_bytes(model.config, activation),
          .scratch_bytes = ActivationStore::bytes_of(model.config, activation, sizes.activations) +
                           ops.scratch_bytes(sizes.limits) + sizes.batch().words() * 4,
          .recorded_bytes = device.recorded_bytes(chained_passes(model, options))};
}

Result<std::unique_ptr<ModelRunner>> ModelRunner::make(const Qwen35Model& model, Device& device,
                                                       Ops& ops, const RunnerOptions& options) {
  if (options.chunk_rows <= 0 || options.chunk_rows % kDeltaChunk != 0)
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("chunk_rows: ", options.chunk_rows, " is no multiple of ", kDeltaChunk)};
  TRY(in_range("decode_rows", options.decode_rows, 1, kMaxDecodeRows));
  TRY(in_range("max_sequences", options.max_sequences, 1, INT32_MAX));
  TRY(in_range("cache_tokens", options.cache_tokens, 1, INT32_MAX));
  std::unique_ptr<ModelRunner> runner(new ModelRunner(model, device, ops));
  runner->options_ = options;
  TRY(runner->allocate());
  return runner;
}

Status ModelRunner::allocate() {
  const Sizes sizes(model_, options_);
  const int64_t sequences = sizes.sequences;
  const KvCache::Format format{.keys = ops_.kv_format(), .values = ops_.kv_format()};
  const DType activation = ops_.activation_dtype();
  TRY_ASSIGN(pool_.kv,
             KvCache::make(device_, model_.config, format, model_.kv_layers(), sizes.pages));
  TRY_ASSIGN(pool_.recurrent, RecurrentState::make(device_, model_.config, activation, sequences));
  TRY_ASSIGN(store_, ActivationStore::make(device_, model_.config, activation, sizes.activations));
  act_ = store_.all;
  TRY(ops_.reserve(sizes.limits));

  TRY_ASSIGN(batch_, StepBatch::make(device_, sizes.batch()));
  mtp_rows_.reserve(static_cast<size_t>(sequences) + 1);
  mtp_positions_.reserve(static_cast<size_t>(sequences) + 1);
  mtp_choices_.resize(static_cast<size_t>(sequences));
  return {};
}

ModelRunner::~ModelRunner() { device_.forget_steps(this); }

Result<SequenceState> ModelRunner::open(int64_t positions) {
  SequenceState sequence;
  const int64_t pages = pages_for(positions);
  if (pages > pool_.kv.free_pages())
    return Error{ErrorCode::kResourceExhausted,
                 str_cat("the KV cache has room for ", pool_.kv.free_pages() * kPageTokens,
                         " more positions, ", positions, " are needed")};
  sequence.slot = pool_.recurrent.take();
  if (sequence.slot < 0)
    return Error{ErrorCode::kResourceExhausted,
                 str_cat("all ", pool_.recurrent.slots(), " slots of recurrent state are taken")};
  for (int64_t i = 0; i < pages; ++i) sequence.pages.push_back(pool_.kv.take());
  return sequence;
}

void ModelRunner::close(SequenceState& sequence) {
  for (const int32_t page : sequence.pages) pool_.kv.release(page);
  if (sequence.slot >= 0) pool_.recurrent.release(sequence.slot);
  sequence = {};
}

const Batch& ModelRunner::make_batch(Phase phase, std::span<const SequenceRows> rows) {
  return fill_batch(phase, rows, {});
}

const Batch& ModelRunner::fill_batch(Phase phase, std::span<const SequenceRows> rows,
                                     std::span<const int64_t> positions) {
  const Batch& batch = batch_.fill(phase, rows, positions);
  store_.all.narrow(batch.rows, batch.logits_count, act_);
  return batch;
}

void ModelRunner::prefill(const SequenceRows& rows) {
  CHECK(static_cast<int64_t>(rows.tokens.size()) <= options_.chunk_rows, rows.tokens.size(),
        " rows in a chunk");
  forward(ops_, model_, make_batch(Phase::kPrefill, std::span(&rows, 1)), pool_, act_);
  rows.sequence->length += static_cast<int64_t>(rows.tokens.size());
  rows.sequence->pending = rows.sequence->offered = 0;
}

void ModelRunner::chunk_logits(int64_t begin, int64_t end) {
  const Batch& batch = batch_.want_logits(begin, end);
  store_.all.narrow(batch.rows, batch.logits_count, act_);
  ops_.logits(
      {.batch = batch, .hidden = act_.hidden, .head = model_.weights.head, .out = act_.logits});
}

void ModelRunner::decode(std::span<const SequenceRows> rows) {
  for (const SequenceRows& plan : rows) {
    const auto count = static_cast<int64_t>(plan.tokens.size());
    CHECK(count <= options_.decode_rows, count, " rows of a sequence, at most ",
          options_.decode_rows);
    CHECK(plan.sequence->offered >= 0, "a sequence twice in one step");
    plan.sequence->offered = -1;
  }
  const Batch& batch = make_batch(Phase::kDecode, rows);
  const auto step = [this, &batch] { forward(ops_, model_, batch, pool_, act_, chosen_); };
  run_step(StepKind::kTarget, batch, 1, step);
  for (const SequenceRows& plan : rows) {
    plan.sequence->pending = 0;  // the step applied them
    plan.sequence->offered = static_cast<int32_t>(plan.tokens.size());
  }
}

void ModelRunner::run_step(StepKind kind, const Batch& batch, int64_t steps,
                           const std::function<void()>& step) {
  // What a step enqueues depends on its counts, and on whether its contexts are short; what else it
  // needs it reads from the batch.
  uint64_t key = static_cast<uint64_t>(kind);
  const auto append = [&key](int64_t value, int bits) {
    CHECK(value >> bits == 0, value, " in the key of a step");
    key = key << bits | static_cast<uint64_t>(value);
  };
  append(batch.is_short ? 1 : 0, 1);
  append(steps, 5);
  append(batch.rows, 19);
  append(batch.sequences, 18);
  append(batch.logits_count, 18);
  if (replay_)
    device_.run_step(this, key, step);
  else
    step();
}

void ModelRunner::set_mtp_rows(std::span<const MtpRows> rows, LogitsWanted logits) {
  CHECK(has_mtp(), "the model has no MTP layer");
  mtp_rows_.clear();
  mtp_positions_.clear();
  for (const MtpRows& plan : rows) {
    mtp_rows_.push_back({.sequence = plan.sequence,
                         .tokens = plan.tokens,
                         .logits = logits,
                         .hidden_row = plan.hidden_row});
    mtp_positions_.push_back(plan.position);
  }
}

const Batch& ModelRunner::make_mtp_batch(Phase phase, std::span<const MtpRows> rows) {
  set_mtp_rows(rows, LogitsWanted::kNone);
  const bool gathers = has_earlier(rows);
  if (gathers) gather_hidden(rows);
  const Batch& batch = fill_batch(phase, mtp_rows_, mtp_positions_);
  act_.mtp_hidden = gathers ? store_.all.mtp_hidden : store_.all.hidden;
  return batch;
}

bool ModelRunner::has_earlier(std::span<const MtpRows> rows) {
  return std::ranges::any_of(rows, [](const MtpRows& plan) { return plan.earlier.defined(); });
}

void ModelRunner::gather_hidden(std::span<const MtpRows> rows) {
  int64_t row = 0;
  const auto copy = [&](const TensorView& from) {
    ops_.copy({.from = from, .to = store_.all.mtp_hidden.slice(0, row, row + from.dim(0))});
    row += from.dim(0);
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    const MtpRows& plan = rows[i];
    const int64_t earlier = plan.earlier.defined() ? plan.earlier.dim(0) : 0;
    const int64_t later = std::ssize(plan.tokens) - earlier;
    mtp_rows_[i].hidden_row = row;
    if (earlier > 0) copy(plan.earlier);
    if (later > 0) copy(hidden_rows(plan.hidden_row, later));
  }
}

void ModelRunner::fill_mtp(const MtpRows& rows) {
  const Batch& batch = make_mtp_batch(Phase::kPrefill, std::span(&rows, 1));
  pewter::fill_mtp(ops_, model_, batch, pool_, act_);
}

void ModelRunner::follow_mtp(std::span<const MtpRows> rows) {
  const Batch& batch = make_mtp_batch(Phase::kDecode, rows);
  run_step(has_earlier(rows) ? StepKind::kFollowGathered : StepKind::kFollow, batch, 1,
           [this, &batch] { pewter::fill_mtp(ops_, model_, batch, pool_, act_); });
}

void ModelRunner::draft_mtp(std::span<const MtpRows> rows, const Guesses& guesses,
                            GreedyChooser& chooser) {
  const int64_t sequences = guesses.sequences;
  CHECK(!has_earlier(rows), "rows that waited are followed, not drafted from");
  CHECK(guesses.each == 1 || sequences <= kMostChained, sequences, " sequences in a chain");
  set_mtp_rows(rows, LogitsWanted::kNone);
  for (int64_t i = 0; i < sequences; ++i) {
    SequenceRows& row = mtp_rows_[static_cast<size_t>(i)];
    CHECK(row.tokens.size() == 1, row.tokens.size(), " rows to draft from");
    row.logits = LogitsWanted::kLast;
  }
  const std::span<const Batch> chain =
      batch_.fill_chain(Phase::kDecode, mtp_rows_, mtp_positions_,
                        {.steps = guesses.each - 1, .sequences = sequences});
  drafting_ = chain.front();
  drafting_.rows = drafting_.sequences = sequences;
  record_with(chooser);
  const auto steps = [&] {
    int64_t choices = 0;
    for (const Batch& batch : chain) {
      run_draft(batch, choices == 0 ? drafting_ : batch, chooser);
      chooser.choose(act_.logits, std::exchange(choices, choices + sequences));
    }
  };
  // By reference: without allocating.
  run_step(StepKind::kDraft, chain.front(), guesses.each, std::cref(steps));
  narrow_to_draft(drafting_);  // as a replay has not
  mtp_rows_.resize(static_cast<size_t>(sequences));
  mtp_positions_.resize(static_cast<size_t>(sequences));
  for (int64_t& position : mtp_positions_) position += guesses.each - 1;
}

// The choice, for which every such step has another place, is no part of what is recorded.
void ModelRunner::draft_mtp_on(int64_t sequences, int64_t choices, GreedyChooser& chooser) {
  const int64_t last = std::ssize(mtp_rows_), first_choice = choices - last;
  CHECK(sequences <= last && act_.hidden.dim(0) == last && first_choice >= 0, sequences,
        " sequences go on from a step of ", last);
  const auto count = static_cast<size_t>(sequences);
  mtp_rows_.resize(count);
  mtp_positions_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    mtp_choices_[i] = -1 - static_cast<int32_t>(first_choice) - static_cast<int32_t>(i);
    mtp_rows_[i].tokens = std::span(mtp_choices_).subspan(i, 1);
    mtp_rows_[i].hidden_row = static_cast<int64_t>(i);
    ++mtp_positions_[i];
  }
  const Batch& batch = batch_.fill(Phase::kDecode, mtp_rows_, mtp_positions_);
  narrow_to_draft(batch);  // a replay does not
  record_with(chooser);
  const auto step = [&] { run_draft(batch, batch, chooser); };
  run_step(StepKind::kDraftOn, batch, 1, std::cref(step));
  chooser.choose(act_.logits, choices);
}

void ModelRunner::record_with(const GreedyChooser& chooser) {
  if (recorded_chooser_ == chooser.id()) return;
  if (recorded_chooser_ != 0) device_.forget_steps(this);
  recorded_chooser_ = chooser.id();
}

void ModelRunner::narrow_to_draft(const Batch& batch) {
  store_.all.narrow(batch.rows, batch.logits_count, act_);
  act_.mtp_hidden = store_.all.hidden;
  const WeightMatrix& head = model_.weights.drafting_head();
  act_.logits = {act_.logits.data(), DType::kF32, {batch.logits_count, head.n}};
}

void ModelRunner::run_draft(const Batch& batch, const Batch& drafting,
                            const GreedyChooser& chooser) {
  narrow_to_draft(batch);
  forward_mtp(ops_, model_, batch, pool_, act_, chooser.chosen(), &drafting);
}

void ModelRunner::accept(SequenceState& sequence, int64_t n) {
  CHECK(n >= 0 && n <= sequence.offered, "accept ", n, " of ", sequence.offered, " rows");
  sequence.offered = 0;
  sequence.length += n;
  sequence.pending = static_cast<int32_t>(n);
}

void ModelRunner::fold(SequenceState& sequence) {
  if (sequence.pending == 0) return;
  fold_slot(ops_, model_, pool_, sequence.slot, sequence.pending);
  sequence.pending = 0;
}

}  // namespace pewter
