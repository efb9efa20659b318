#include "cli/bench_run.h"

#include <algorithm>
#include <cmath>

#include "cli/bench_session.h"
#include "model/dflash/draft_bytes.h"

namespace pewter {
namespace {

// What a token needs, from what the router was seen to choose.
void count_needs(BenchResult& result) {
  const BenchOptions& options = result.options;
  const auto tokens = static_cast<double>(options.tokens);
  if (options.kind == BenchKind::kPrefill) {
    result.flops_per_token =
        prefill_flops(result.config, {.tokens = options.tokens, .context = options.depth}) / tokens;
    return;
  }
  result.step = decode_bytes(result.config, result.footprint,
                             {.sequences = options.sequences,
                              .rows = options.sequences * options.rows,
                              .distinct_experts = result.distinct_experts,
                              .context = static_cast<double>(options.depth) +
                                         (tokens - 1) / 2 * options.tokens_per_step()});
  result.bytes_per_token =
      result.step.total() / (static_cast<double>(options.sequences) * options.tokens_per_step());
}

// What a step's drafts need.
double draft_bytes(const BenchResult& result, const BenchModel& made) {
  const BenchOptions& options = result.options;
  const DraftStep step{
      .sequences = options.sequences,
      .drafts = options.rows - 1,
      .committed_rows = options.tokens_per_step(),
      .context = static_cast<double>(options.depth) +
                 static_cast<double>(options.tokens + 1) / 2 * options.tokens_per_step()};
  const DraftEnds ends = draft_ends(result.config, made.footprint, options.draft_head_rows);
  if (options.drafts == DraftMethod::kMtp)
    return mtp_draft_bytes(result.config, made.footprint, ends, step);
  const int64_t kv = made.backend.ops->kv_format() == KvFormat::kF32 ? 4 : 2;
  return made.dflash ? dflash_draft_bytes(*made.dflash, ends, kv, step) : 0;
}

// Steps behind the depth, of both kinds, without which there is nothing to compare.
constexpr int64_t kRollbackTokens = 4;

bool is_quantised_int4(const Footprint& footprint) {
  return std::ranges::any_of(footprint.components, [](const ComponentBytes& component) {
    return component.formats.find("int4") != std::string::npos;
  });
}

}  // namespace

double BenchResult::best() const { return *std::ranges::max_element(tokens_per_second); }

double BenchResult::step_seconds() const {
  return static_cast<double>(options.sequences) * options.tokens_per_step() / best();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
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
                     .bandwidth_kind = traffic_name(ceilings->usual_traffic())};
  const Arithmetic arithmetic =
      is_quantised_int4(made.footprint) ? Arithmetic::kInt8Dot : Arithmetic::kBF16Dot;
  const auto measure_ceiling = [&] {
    if (decodes) {
      result.ceiling_bytes_per_second =
          std::max(result.ceiling_bytes_per_second, ceilings->bandwidth(ceilings->usual_traffic()));
      return;
    }
    const ArithmeticCeiling ceiling = ceilings->arithmetic(arithmetic);
    if (ceiling.flops_per_second > result.arithmetic.flops_per_second) result.arithmetic = ceiling;
  };

  TRY_ASSIGN(const std::unique_ptr<BenchSession> session, BenchSession::make(options, hooks, made));
  if (hooks.progress) hooks.progress("warming up");
  session->count_experts(true);
  session->repeat(decodes ? std::min<int64_t>(options.tokens, 8) : options.tokens);
  session->count_experts(false);
  if (decodes) session->repeat(2);  // what is recorded for replay is recorded now
  measure_ceiling();
  double draft_seconds = 0;
  for (int64_t i = 0; i < options.repeats; ++i) {
    if (hooks.progress) hooks.progress(str_cat("repeat ", i + 1, " of ", options.repeats));
    result.tokens_per_second.push_back(session->repeat(options.tokens));
    if (result.tokens_per_second.back() == result.best()) draft_seconds = session->draft_seconds();
    measure_ceiling();
  }
  if (!session->finite()) return Error{ErrorCode::kInternal, "the model's logits are not finite"};
  result.distinct_experts = session->distinct_experts();
  count_needs(result);
  if (options.drafts != DraftMethod::kNone)
    result.draft = DraftCost{.seconds = draft_seconds, .bytes = draft_bytes(result, made)};
  if (decodes && options.rows > 1 && options.tokens >= kRollbackTokens) {
    if (hooks.progress) hooks.progress("rolling back");
    result.rollback = session->rollback(options.tokens * options.repeats);
  }
  if (options.profile) {
    if (hooks.progress) hooks.progress("running stages by themselves");
    TRY_ASSIGN(result.profile, session->profile());
    result.profile->step_seconds = result.step_seconds();
    measure_ceiling();
  }
  return result;
}

}  // namespace pewter
