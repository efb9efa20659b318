#include "cli/bench_run.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/bench_model.h"
#include "cli/expert_probe.h"
#include "engine/step_sampler.h"

namespace pewter {
namespace {

// Nobody looks at the tokens, but choosing them is part of a step.
class Chooser {
 public:
  Chooser(Device& device, Ops& ops, int64_t rows, int64_t vocab)
      : sampler_(
            StepSampler::make(device, ops, {.rows = rows, .vocab_limit = vocab, .token_mask = {}})),
        greedy_({.prompt = {0}, .sampling = {.temperature = 0}}, {}),
        rows_(static_cast<size_t>(rows), &greedy_) {}

  Status status() const { return sampler_ ? Status() : sampler_.error(); }
  void choose(const TensorView& logits) {
    for (const StepSampler::Choice& choice : sampler_->sample(logits, rows_))
      finite_ = finite_ && choice.token >= 0;
  }
  bool finite() const { return finite_; }

 private:
  Result<StepSampler> sampler_;
  Sampler greedy_;
  std::vector<const Sampler*> rows_;
  bool finite_ = true;
};

// Fills positions [filled, depth) of the sequences by copying pages of the first ones: attention
// does the same work on any keys, and a prompt of thousands of tokens would take minutes.
void copy_pages(ModelRunner& runner, Device& device, const SequenceState& from, int64_t filled,
                SequenceState& to, int64_t begin, int64_t depth) {
  const int64_t full = std::max<int64_t>(1, filled / kPageTokens);
  std::vector<std::byte> page;
  const auto copy = [&](std::byte* plane, int64_t bytes, int32_t source, int32_t target) {
    page.resize(static_cast<size_t>(bytes));
    device.copy_to_host(page, plane + source * bytes);
    device.copy_to_device(plane + target * bytes, page);
  };
  for (int64_t p = begin / kPageTokens; p < pages_for(depth); ++p) {
    const int32_t source = from.pages[static_cast<size_t>(p % full)];
    const int32_t target = to.pages[static_cast<size_t>(p)];
    if (source == target) continue;
    for (int64_t l = 0; l < runner.pool().kv.layers(); ++l) {
      const KvLayer layer = runner.pool().kv.layer(l);
      copy(layer.keys, layer.key_page_bytes, source, target);
      copy(layer.values, layer.value_page_bytes, source, target);
    }
  }
}

class Bench {
 public:
  Bench(const BenchOptions& options, const BenchHooks& hooks, BenchModel& model)
      : options_(options),
        hooks_(hooks),
        made_(model),
        probe_(*model.backend.ops, *model.backend.device),
        chooser_(*model.backend.device, *model.backend.ops, step_rows(),
                 model.model.config.vocab_size),
        rng_(7) {}

  Status prepare() {
    TRY(chooser_.status());
    TRY_ASSIGN(runner_, ModelRunner::make(made_.model, *made_.backend.device, probe_,
                                          bench_runner_options(options_)));
    const int64_t positions = runner_->options().cache_tokens / options_.sequences;
    sequences_.resize(static_cast<size_t>(options_.sequences));
    for (SequenceState& sequence : sequences_) {
      TRY_ASSIGN(sequence, runner_->open(positions));
    }
    fill_to_depth();
    return {};
  }

  // Tokens a second of one repeat.
  double repeat(int64_t tokens) {
    rewind();
    const Stopwatch watch;
    if (options_.kind == BenchKind::kPrefill)
      prefill(sequences_[0], tokens, LogitsWanted::kLast);
    else
      for (int64_t i = 0; i < tokens; ++i) step();
    const double done =
        static_cast<double>(options_.kind == BenchKind::kPrefill ? tokens : tokens * step_rows());
    return done / watch.seconds();
  }

  // Counting looks at every layer's choice, which a replayed step does not stop for.
  void count_experts(bool on) {
    probe_.count_experts(on);
    runner_->set_replay(!on);
  }
  double distinct_experts() const { return probe_.distinct_experts(); }
  bool finite() const { return chooser_.finite(); }
  int64_t step_rows() const {
    return options_.kind == BenchKind::kDecode ? options_.sequences * options_.rows : 1;
  }

 private:
  void fill_to_depth() {
    const int64_t first = std::min(options_.depth, runner_->options().chunk_rows);
    if (first == 0) return;
    if (hooks_.progress) hooks_.progress(str_cat("filling ", options_.depth, " positions"));
    for (SequenceState& sequence : sequences_) {
      prefill(sequence, first, LogitsWanted::kNone);
      copy_pages(*runner_, *made_.backend.device, sequence, first, sequence,
                 first / kPageTokens * kPageTokens, options_.depth);
    }
  }

  // Back to the depth. The recurrent state stays what it became: it has no length.
  void rewind() {
    for (SequenceState& sequence : sequences_) {
      sequence.length = options_.depth;
      sequence.pending = sequence.offered = 0;
    }
  }

  // Random tokens: a model of random weights would choose the same one for ever, and with it the
  // same experts.
  std::span<const int32_t> random_tokens(int64_t count) {
    tokens_.resize(static_cast<size_t>(count));
    for (int32_t& token : tokens_)
      token =
          static_cast<int32_t>(rng_.below(static_cast<uint64_t>(made_.model.config.vocab_size)));
    return tokens_;
  }

  void prefill(SequenceState& sequence, int64_t count, LogitsWanted logits) {
    const std::span<const int32_t> tokens = random_tokens(count);
    const auto chunk = static_cast<size_t>(runner_->options().chunk_rows);
    for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
      const size_t end = std::min(begin + chunk, tokens.size());
      runner_->prefill({.sequence = &sequence,
                        .tokens = tokens.subspan(begin, end - begin),
                        .logits = end == tokens.size() ? logits : LogitsWanted::kNone});
    }
    if (logits != LogitsWanted::kNone) chooser_.choose(runner_->logits());
  }

  void step() {
    const std::span<const int32_t> tokens = random_tokens(step_rows());
    rows_.clear();
    for (size_t s = 0; s < sequences_.size(); ++s)
      rows_.push_back({.sequence = &sequences_[s],
                       .tokens = tokens.subspan(s * static_cast<size_t>(options_.rows),
                                                static_cast<size_t>(options_.rows)),
                       .logits = LogitsWanted::kAll});
    runner_->decode(rows_);
    chooser_.choose(runner_->logits());
    for (SequenceState& sequence : sequences_) runner_->accept(sequence, options_.rows);
  }

  const BenchOptions& options_;
  const BenchHooks& hooks_;
  BenchModel& made_;
  ExpertProbe probe_;
  Chooser chooser_;
  Rng rng_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<SequenceState> sequences_;
  std::vector<int32_t> tokens_;
  std::vector<SequenceRows> rows_;
};

// What a token needs, from what the router was seen to choose.
void count_needs(BenchResult& result) {
  const BenchOptions& options = result.options;
  const auto tokens = static_cast<double>(options.tokens);
  if (options.kind == BenchKind::kPrefill) {
    result.flops_per_token =
        prefill_flops(result.config, {.tokens = options.tokens, .context = options.depth}) / tokens;
    return;
  }
  const auto rows = static_cast<double>(options.rows);
  result.step =
      decode_bytes(result.config, result.footprint,
                   {.sequences = options.sequences,
                    .rows = options.sequences * options.rows,
                    .distinct_experts = result.distinct_experts,
                    .context = static_cast<double>(options.depth) + (tokens - 1) / 2 * rows});
  result.bytes_per_token =
      result.step.total() / static_cast<double>(options.sequences * options.rows);
}

bool is_quantised_int4(const Footprint& footprint) {
  return std::ranges::any_of(footprint.components, [](const ComponentBytes& component) {
    return component.formats.find("int4") != std::string::npos;
  });
}

}  // namespace

double BenchResult::best() const { return *std::ranges::max_element(tokens_per_second); }

double BenchResult::median() const {
  std::vector<double> sorted = tokens_per_second;
  std::ranges::sort(sorted);
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

Result<BenchResult> run_bench(const BenchOptions& options, const BenchHooks& hooks) {
  TRY_ASSIGN(const std::unique_ptr<Ceilings> ceilings, make_ceilings(options.backend));
  const bool decodes = options.kind == BenchKind::kDecode;
  TRY_ASSIGN(BenchModel made,
             make_bench_model(options, decodes ? ceilings->buffer_bytes() : 0, hooks));
  BenchResult result{.options = options,
                     .config = made.model.config,
                     .footprint = made.footprint,
                     .device = made.backend.name,
                     .threads = ceilings->threads(),
                     .processors = ceilings->processors(),
                     .bandwidth_kind = ceilings->bandwidth_kind()};
  const Arithmetic arithmetic =
      is_quantised_int4(made.footprint) ? Arithmetic::kInt8Dot : Arithmetic::kBF16Dot;
  const auto measure_ceiling = [&] {
    if (decodes) {
      result.ceiling_bytes_per_second =
          std::max(result.ceiling_bytes_per_second, ceilings->bandwidth());
      return;
    }
    const ArithmeticCeiling ceiling = ceilings->arithmetic(arithmetic);
    if (ceiling.flops_per_second > result.arithmetic.flops_per_second) result.arithmetic = ceiling;
  };

  Bench bench(options, hooks, made);
  TRY(bench.prepare());
  if (hooks.progress) hooks.progress("warming up");
  bench.count_experts(true);
  bench.repeat(decodes ? std::min<int64_t>(options.tokens, 8) : options.tokens);
  bench.count_experts(false);
  if (decodes) bench.repeat(2);  // what is recorded for replay is recorded now
  measure_ceiling();
  for (int64_t i = 0; i < options.repeats; ++i) {
    if (hooks.progress) hooks.progress(str_cat("repeat ", i + 1, " of ", options.repeats));
    result.tokens_per_second.push_back(bench.repeat(options.tokens));
    measure_ceiling();
  }
  if (!bench.finite()) return Error{ErrorCode::kInternal, "the model's logits are not finite"};
  result.distinct_experts = bench.distinct_experts();
  count_needs(result);
  return result;
}

}  // namespace pewter
