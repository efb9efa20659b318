#include "cli/bench_drafting.h"

#include <algorithm>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/bench_model.h"
#include "cli/profile_report.h"
#include "cli/speculative_config.h"
#include "cli/table.h"
#include "engine/speculator.h"
#include "engine/step_sampler.h"

namespace pewter {
namespace {

class DraftingSession {
 public:
  DraftingSession(const DraftingOptions& options, BenchModel& made)
      : options_(options),
        made_(made),
        greedy_({.prompt = {0}, .sampling = {.temperature = 0}}, {}) {}

  Status prepare() {
    const BenchOptions& bench = options_.bench;
    Device& device = *made_.backend.device;
    Ops& ops = *made_.backend.ops;
    RunnerOptions runner = bench_runner_options(bench);
    if (made_.dflash) runner.beside = DflashModel::limits(made_.dflash->config);
    TRY_ASSIGN(runner_, ModelRunner::make(made_.model, device, ops, runner));
    TRY_ASSIGN(sampler_, StepSampler::make(device, ops,
                                           {.rows = bench.sequences * bench.rows,
                                            .vocab_limit = made_.model.config.vocab_size,
                                            .token_mask = {}}));
    const DraftOptions draft{
        .method = bench.drafts, .tokens = bench.rows - 1, .depth = DraftLength::kByCost};
    TRY_ASSIGN(std::shared_ptr<Drafter> model,
               make_drafter(draft, made_.dflash, *runner_, device, ops));
    speculator_.emplace(Speculator::Options{
        .draft = draft, .max_sequences = bench.sequences, .model = std::move(model), .clock = [] {
          static const Stopwatch watch;
          return watch.seconds();
        }});
    positions_ = runner_->options().cache_tokens / bench.sequences;
    sequences_.resize(static_cast<size_t>(bench.sequences));
    return {};
  }

  // Tokens a second.
  Result<double> repeat(bool drafts) {
    for (Sequence& sequence : sequences_) TRY(open(sequence, drafts));
    int64_t tokens = 0;
    const Stopwatch watch;
    for (int64_t i = 0; i < options_.bench.tokens; ++i) tokens += step(drafts);
    const double rate = static_cast<double>(tokens) / watch.seconds();
    for (Sequence& sequence : sequences_) runner_->close(sequence.state);
    return rate;
  }

  DraftFigures figures() const { return figures_; }
  int64_t drafted_steps() const { return drafted_steps_; }

 private:
  struct Sequence {
    SequenceState state;
    std::vector<int32_t> text, next;  // next: the token chosen last, then its guesses
    std::span<const int32_t> guesses() const { return std::span(next).subspan(1); }
  };

  int32_t random_token() {
    return static_cast<int32_t>(rng_.below(static_cast<uint64_t>(made_.model.config.vocab_size)));
  }

  Status open(Sequence& sequence, bool drafts) {
    TRY_ASSIGN(sequence.state, runner_->open(positions_));
    sequence.text.clear();
    sequence.text.reserve(static_cast<size_t>(positions_) + 1);
    sequence.next.reserve(static_cast<size_t>(options_.bench.rows));
    sequence.next.assign(1, random_token());
    sequence.text.push_back(sequence.next.front());
    return drafts ? speculator_->begin(sequence.state, positions_) : Status();
  }

  // Tokens of all sequences.
  int64_t step(bool drafts) {
    const double begin = drafts ? speculator_->now() : 0;
    rows_.clear();
    sampled_.clear();
    for (Sequence& sequence : sequences_) {
      rows_.push_back(
          {.sequence = &sequence.state, .tokens = sequence.next, .logits = LogitsWanted::kAll});
      sampled_.push_back({.sampler = &greedy_, .drafts = sequence.guesses()});
    }
    runner_->decode(rows_);
    sampler_->sample(runner_->logits(), sampled_);
    int64_t tokens = 0, guesses = 0, first_row = 0;
    wanted_.clear();
    for (Sequence& sequence : sequences_) {
      const int64_t drafted = std::ssize(sequence.guesses()), rows = commit(sequence, drafts);
      tokens += rows;
      guesses += drafted;
      wanted_.push_back({.state = &sequence.state,
                         .tokens = sequence.text,
                         .first_row = first_row,
                         .rows = rows,
                         .most = options_.bench.rows - 1,
                         .drafts = &sequence.next});
      first_row += 1 + drafted;
    }
    if (!drafts) return tokens;
    ++drafted_steps_;
    speculator_->stepped(std::ssize(sequences_), guesses, speculator_->now() - begin);
    speculator_->start(wanted_, 0);
    speculator_->finish(/*all=*/false);
    return tokens;
  }

  // The rows that count; guesses are right as often as was said.
  int64_t commit(Sequence& sequence, bool drafts) {
    const int64_t drafted = std::ssize(sequence.guesses());
    int64_t right = 0;
    while (right < drafted && rng_.uniform() < static_cast<float>(options_.acceptance)) ++right;
    runner_->accept(sequence.state, 1 + right);
    for (const int32_t guess : sequence.guesses().first(static_cast<size_t>(right)))
      sequence.text.push_back(guess);
    sequence.next.assign(1, random_token());
    sequence.text.push_back(sequence.next.front());
    if (drafts) {
      figures_.add(drafted, right);
      speculator_->judged(sequence.state, drafted, right);
    }
    return 1 + right;
  }

  const DraftingOptions& options_;
  BenchModel& made_;
  std::unique_ptr<ModelRunner> runner_;
  std::optional<StepSampler> sampler_;
  Sampler greedy_;
  std::optional<Speculator> speculator_;
  int64_t positions_ = 0, drafted_steps_ = 0;
  Rng rng_{7};
  DraftFigures figures_;
  std::vector<Sequence> sequences_;
  std::vector<SequenceRows> rows_;
  std::vector<StepSampler::Rows> sampled_;
  std::vector<DraftSequence> wanted_;
};

}  // namespace

double DraftingResult::gain() const {
  std::vector<double> ratios;
  for (size_t i = 0; i < plain.size(); ++i) ratios.push_back(drafted[i] / plain[i]);
  return median(std::move(ratios));
}

Result<DraftingResult> run_drafting_bench(const DraftingOptions& options, const BenchHooks& hooks) {
  TRY_ASSIGN(BenchModel made, make_bench_model(options.bench, 0, hooks));
  TRY_ASSIGN(const std::unique_ptr<Ceilings> ceilings, make_ceilings(options.bench.backend));
  DraftingResult result{
      .options = options, .device = made.backend.name, .processors = ceilings->processors()};
  DraftingSession session(options, made);
  TRY(session.prepare());
  DraftFigures settled;
  int64_t settled_steps = 0;
  for (int64_t i = 0; i <= options.bench.repeats; ++i) {
    if (hooks.progress)
      hooks.progress(i == 0 ? "settling" : str_cat("repeat ", i, " of ", options.bench.repeats));
    TRY_ASSIGN(const double plain, session.repeat(false));
    TRY_ASSIGN(const double drafted, session.repeat(true));
    if (i > 0) {
      result.plain.push_back(plain);
      result.drafted.push_back(drafted);
    } else {
      settled = session.figures();
      settled_steps = session.drafted_steps();
    }
  }
  result.figures = session.figures().since(settled);
  result.steps = session.drafted_steps() - settled_steps;
  return result;
}

std::string drafting_text(const DraftingResult& r) {
  using enum Table::Align;
  const BenchOptions& o = r.options.bench;
  Table table({kLeft, kRight, kLeft});
  table.row({"plain", rate(median(r.plain)) + " tok/s", str_cat("median of ", r.plain.size())});
  table.row({"drafted", rate(median(r.drafted)) + " tok/s", "in turn with them"});
  table.row({"ratio", percent(r.gain()), "median of pairs"});
  table.row({"drafts", str_cat(r.figures.drafts),
             str_cat("in ", r.steps, " steps, ", r.figures.draft_tokens, " guesses, ",
                     r.figures.accepted_tokens, " right")});
  return str_cat(o.model.empty() ? str_cat(o.shape, ", ", o.format) : o.model, " on ", r.device,
                 ": ", o.sequences, o.sequences == 1 ? " sequence, " : " sequences, ", o.tokens,
                 " steps, at most ", o.rows - 1, " guesses by ", draft_method_name(o.drafts),
                 ", right ", percent(r.options.acceptance), " of the time, ", r.processors, "\n\n",
                 table.text());
}

Json drafting_json(const DraftingResult& r) {
  const BenchOptions& o = r.options.bench;
  return Json::Object{{"bench", "drafting"},
                      {"model", o.model.empty() ? o.shape : o.model},
                      {"device", r.device},
                      {"processors", r.processors},
                      {"sequences", o.sequences},
                      {"tokens", o.tokens},
                      {"draft_tokens", o.rows - 1},
                      {"speculate", std::string(draft_method_name(o.drafts))},
                      {"acceptance", r.options.acceptance},
                      {"plain_tokens_per_second", median(r.plain)},
                      {"tokens_per_second", median(r.drafted)},
                      {"ratio", r.gain()},
                      {"steps", r.steps},
                      {"drafts", r.figures.drafts},
                      {"guesses", r.figures.draft_tokens},
                      {"right", r.figures.accepted_tokens}};
}

}  // namespace pewter
