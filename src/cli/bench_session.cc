#include "cli/bench_session.h"

#include <algorithm>
#include <utility>

namespace pewter {
namespace {

// Fills positions [begin, depth) of a sequence by copying pages of its first `filled`: attention
// does the same work on any keys, and a prompt of thousands of tokens would take minutes.
void copy_pages(ModelRunner& runner, Device& device, const SequenceState& sequence, int64_t filled,
                int64_t begin, int64_t depth) {
  const int64_t full = std::max<int64_t>(1, filled / kPageTokens);
  std::vector<std::byte> page;
  const auto copy = [&](std::byte* plane, int64_t bytes, int32_t source, int32_t target) {
    page.resize(static_cast<size_t>(bytes));
    device.copy_to_host(page, plane + source * bytes);
    device.copy_to_device(plane + target * bytes, page);
  };
  for (int64_t p = begin / kPageTokens; p < pages_for(depth); ++p) {
    const int32_t source = sequence.pages[static_cast<size_t>(p % full)];
    const int32_t target = sequence.pages[static_cast<size_t>(p)];
    if (source == target) continue;
    for (int64_t l = 0; l < runner.pool().kv.layers(); ++l) {
      const KvLayer layer = runner.pool().kv.layer(l);
      copy(layer.keys, layer.key_page_bytes, source, target);
      copy(layer.values, layer.value_page_bytes, source, target);
    }
  }
}

}  // namespace

BenchSession::BenchSession(const BenchOptions& options, const BenchHooks& hooks, BenchModel& model)
    : options_(options),
      hooks_(hooks),
      made_(model),
      recorder_(*model.backend.ops),
      probe_(recorder_, *model.backend.device),
      greedy_({.prompt = {0}, .sampling = {.temperature = 0}}, {}),
      choosers_(static_cast<size_t>(step_rows()), {.sampler = &greedy_}) {}

Result<std::unique_ptr<BenchSession>> BenchSession::make(const BenchOptions& options,
                                                         const BenchHooks& hooks,
                                                         BenchModel& model) {
  std::unique_ptr<BenchSession> session(new BenchSession(options, hooks, model));
  TRY(session->prepare());
  return session;
}

Status BenchSession::prepare() {
  Device& device = *made_.backend.device;
  TRY_ASSIGN(StepSampler sampler, StepSampler::make(device, recorder_,
                                                    {.rows = step_rows(),
                                                     .vocab_limit = made_.model.config.vocab_size,
                                                     .token_mask = {}}));
  sampler_ = std::make_unique<StepSampler>(std::move(sampler));
  RunnerOptions runner = bench_runner_options(options_);
  if (made_.dflash) runner.beside = DflashModel::limits(made_.dflash->config);
  TRY_ASSIGN(runner_, ModelRunner::make(made_.model, device, probe_, runner));
  if (options_.drafts == DraftMethod::kMtp || options_.drafts == DraftMethod::kDflash) {
    const DraftOptions draft{.method = options_.drafts, .tokens = options_.rows - 1};
    TRY_ASSIGN(drafter_, make_drafter(draft, made_.dflash, *runner_, device, *made_.backend.ops));
  }
  drafts_.resize(static_cast<size_t>(options_.sequences));
  for (std::vector<int32_t>& drafts : drafts_) drafts.reserve(kMaxDrafts);
  const int64_t positions = runner_->options().cache_tokens / options_.sequences;
  sequences_.resize(static_cast<size_t>(options_.sequences));
  for (SequenceState& sequence : sequences_) {
    TRY_ASSIGN(sequence, runner_->open(positions));
  }
  fill_to_depth();
  return options_.routing == Routing::kOverlapped ? overlap_tokens() : Status();
}

Status BenchSession::overlap_tokens() {
  constexpr int64_t kSteps = 4;  // of a trial
  TRY_ASSIGN(overlapped_, OverlappedTokens::make(*made_.backend.device, made_.model.weights.embed));
  if (hooks_.progress) hooks_.progress("looking for tokens that share experts");
  count_experts(true);
  const Status tuned =
      overlapped_->tune(overlapped_experts(made_.model.config, options_.rows), [&] {
        probe_.forget();
        rewind();
        for (int64_t i = 0; i < std::min(kSteps, options_.tokens); ++i) step();
        return probe_.distinct_experts();
      });
  probe_.forget();
  count_experts(false);
  return tuned;
}

int64_t BenchSession::step_rows() const {
  return options_.kind == BenchKind::kDecode ? options_.sequences * options_.rows : 1;
}

double BenchSession::repeat(int64_t tokens) {
  rewind();
  draft_seconds_ = 0;
  const Stopwatch watch;
  if (options_.kind == BenchKind::kPrefill)
    prefill(sequences_[0], tokens, LogitsWanted::kLast);
  else
    for (int64_t i = 0; i < tokens; ++i) step();
  if (std::exchange(ahead_, false)) hear_choices();
  hear_guesses();
  const double done =
      options_.kind == BenchKind::kPrefill
          ? static_cast<double>(tokens)
          : static_cast<double>(tokens * options_.sequences) * options_.tokens_per_step();
  draft_seconds_ /= static_cast<double>(tokens);
  return done / watch.seconds();
}

RollbackCost BenchSession::rollback(int64_t steps) {
  const int64_t part = options_.rows / 2;
  std::vector<double> after_part, after_all;
  for (int64_t i = 0; i < std::max<int64_t>(steps, 4); ++i) {
    if (i % options_.tokens == 0) rewind();
    const Stopwatch watch;
    run_rows();
    // The first one follows neither.
    if (i % options_.tokens > 0) (i % 2 == 0 ? after_all : after_part).push_back(watch.seconds());
    accept(i % 2 == 0 ? part : options_.rows);
  }
  return {.rows = part, .after_part = median(after_part), .after_all = median(after_all)};
}

Result<StepProfile> BenchSession::profile(const StageFilter& wanted) {
  TRY_ASSIGN(OpTimer timer, OpTimer::make(*made_.backend.device));
  rewind();
  runner_->set_replay(false);  // a replayed step calls no op
  RecordedStep recorded;
  recorder_.record(&recorded);
  run_rows();
  recorder_.record(nullptr);
  accept(rows_that_count());
  runner_->set_replay(true);
  return profile_step(recorded, *made_.backend.ops, *made_.backend.device, timer,
                      static_cast<double>(options_.depth), wanted);
}

void BenchSession::count_experts(bool on) {
  probe_.count_experts(on);
  counts_experts_ = on;
  runner_->set_replay(!on);
}

void BenchSession::fill_to_depth() {
  const int64_t first = std::min(options_.depth, runner_->options().chunk_rows);
  if (first == 0) return;
  if (hooks_.progress) hooks_.progress(str_cat("filling ", options_.depth, " positions"));
  for (SequenceState& sequence : sequences_) {
    prefill(sequence, first, LogitsWanted::kNone);
    copy_pages(*runner_, *made_.backend.device, sequence, first, first / kPageTokens * kPageTokens,
               options_.depth);
  }
}

// Back to the depth. The recurrent state stays what it became: it has no length.
void BenchSession::rewind() {
  for (SequenceState& sequence : sequences_) {
    sequence.length = options_.depth;
    sequence.pending = sequence.offered = 0;
  }
  text_.clear();
}

// Random tokens: a model of random weights would choose the same one for ever, and with it the
// same experts.
std::span<const int32_t> BenchSession::random_tokens(int64_t count) {
  tokens_.resize(static_cast<size_t>(count));
  if (overlapped_ && count == options_.rows) {
    overlapped_->pick(rng_, tokens_);
    return tokens_;
  }
  for (int32_t& token : tokens_)
    token = static_cast<int32_t>(rng_.below(static_cast<uint64_t>(made_.model.config.vocab_size)));
  return tokens_;
}

void BenchSession::prefill(SequenceState& sequence, int64_t count, LogitsWanted logits) {
  const std::span<const int32_t> tokens = random_tokens(count);
  const auto chunk = static_cast<size_t>(runner_->options().chunk_rows);
  for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const size_t end = std::min(begin + chunk, tokens.size());
    runner_->prefill({.sequence = &sequence,
                      .tokens = tokens.subspan(begin, end - begin),
                      .logits = end == tokens.size() ? logits : LogitsWanted::kNone});
  }
  if (logits == LogitsWanted::kNone) return;
  sampler_->start(runner_->logits(), choosers_);
  hear_choices();
}

bool BenchSession::goes_ahead() const {
  return made_.backend.device->is_asynchronous() && options_.rows == 1 && !counts_experts_;
}

void BenchSession::start_rows() {
  const std::span<const int32_t> tokens = random_tokens(step_rows());
  rows_.clear();
  for (size_t s = 0; s < sequences_.size(); ++s)
    rows_.push_back({.sequence = &sequences_[s],
                     .tokens = tokens.subspan(s * static_cast<size_t>(options_.rows),
                                              static_cast<size_t>(options_.rows)),
                     .logits = LogitsWanted::kAll});
  runner_->decode(rows_);
  hear_guesses();
  sampler_->start(runner_->logits(), choosers_);
}

void BenchSession::run_rows() {
  start_rows();
  hear_choices();
}

void BenchSession::accept(int64_t rows) {
  for (SequenceState& sequence : sequences_) runner_->accept(sequence, rows);
}

void BenchSession::step() {
  start_rows();
  if (!goes_ahead() || std::exchange(ahead_, true)) hear_choices();
  const int64_t counted = rows_that_count();
  accept(counted);
  if (options_.drafts == DraftMethod::kNone || counts_experts_) return;
  draft_watch_.restart();
  if (drafter_)
    guessing_ = draft(counted);
  else
    look_up(counted);
  if (!guessing_)
    draft_seconds_ += draft_watch_.seconds();
  else if (!made_.backend.device->is_asynchronous())
    hear_guesses();
}

void BenchSession::hear_guesses() {
  if (!std::exchange(guessing_, false)) return;
  drafter_->finish(/*all=*/true);
  draft_seconds_ += draft_watch_.seconds();
}

// Where the same words come again, as soon as a period has passed.
void BenchSession::look_up(int64_t counted) {
  constexpr int64_t kPeriod = 61, kShortest = 3;
  if (text_.empty()) {
    index_.begin(options_.depth + (options_.tokens + 1) * options_.rows, kShortest);
    text_.reserve(static_cast<size_t>(options_.depth + (options_.tokens + 1) * options_.rows));
    for (int64_t i = 0; i < options_.depth; ++i) text_.push_back(static_cast<int32_t>(i % kPeriod));
  }
  for (int64_t i = 0; i < counted; ++i)
    text_.push_back(static_cast<int32_t>(std::ssize(text_) % kPeriod));
  for (std::vector<int32_t>& drafts : drafts_) {
    drafts.clear();
    index_.draft(text_, options_.rows - 1, drafts);
  }
}

int64_t BenchSession::rows_that_count() {
  credit_ += options_.tokens_per_step();
  const auto counted = static_cast<int64_t>(credit_);
  credit_ -= static_cast<double>(counted);
  return counted;
}

// The guesses cost what they cost and are not looked at: random tokens are verified.
bool BenchSession::draft(int64_t counted) {
  draft_sequences_.clear();
  for (size_t s = 0; s < sequences_.size(); ++s) {
    drafts_[s].clear();
    draft_sequences_.push_back({.state = &sequences_[s],
                                .tokens = rows_[s].tokens.first(static_cast<size_t>(counted)),
                                .first_row = static_cast<int64_t>(s) * options_.rows,
                                .rows = counted,
                                .most = options_.rows - 1,
                                .drafts = &drafts_[s]});
  }
  return drafter_->start(draft_sequences_);
}

void BenchSession::hear_choices() {
  for (const StepSampler::Choice& choice : sampler_->finish())
    finite_ = finite_ && choice.token >= 0;
}

}  // namespace pewter
