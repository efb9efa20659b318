#include "cli/bench_model.h"

#include <algorithm>

#include "base/clock.h"
#include "base/memory_info.h"
#include "engine/dflash_drafter.h"
#include "model/dflash/random.h"
#include "model/qwen35/load.h"
#include "model/qwen35/random_weights.h"
#include "model/qwen35/shapes.h"

namespace pewter {
namespace {

StateTypes state_types(const Ops& ops) {
  return {.activations = ops.activation_dtype(),
          .kv = ops.kv_format() == KvFormat::kF32 ? DType::kF32 : DType::kBF16};
}

std::string bytes_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

// A line of progress, at most ten a second.
auto limited(const BenchHooks& hooks, std::string what) {
  return [&hooks, what = std::move(what), watch = Stopwatch(), shown = -1.0](
             int64_t done, int64_t total) mutable {
    if (!hooks.progress || (watch.seconds() < shown + 0.1 && done < total)) return;
    shown = watch.seconds();
    hooks.progress(str_cat(what, ": ", bytes_text(done), " of ", bytes_text(total)));
  };
}

Error invalid(std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message)};
}

// What flags and the model's config have wrong together.
Status check_options(const BenchOptions& options, const ModelConfig& config) {
  const int64_t positions = options.depth + options.tokens * options.rows;
  if (positions > config.max_positions)
    return invalid(str_cat("--depth and --tokens make ", positions, " positions, more than the ",
                           config.max_positions, " this model was made for"));
  if (config.tied_embeddings && options.lm_head != "bf16" && options.lm_head != "int8")
    return invalid(str_cat("--lm-head: the head of ", options.shape,
                           " is its embedding, so want bf16 or int8"));
  return {};
}

Status tap(const BenchOptions& options, BenchModel& made) {
  const DflashConfig& config = made.dflash->config;
  if (options.rows > config.block_size)
    return invalid(str_cat("--rows: ", options.rows, " is more than the drafter's block of ",
                           config.block_size));
  made.model.taps = config.taps;
  return {};
}

Result<BenchModel> load_checkpoint(const BenchOptions& options, const BenchHooks& hooks) {
  BenchModel made;
  TRY_ASSIGN(made.backend, make_backend(options.backend));
  TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options.model));
  TRY_ASSIGN(ModelConfig config, ModelConfig::parse(checkpoint.config()));
  TRY(check_options(options, config));
  const LmHead head = options.lm_head == "int8" ? LmHead::kInt8 : LmHead::kAsStored;
  const auto note_sizes = [&](const LoadPlan& plan) -> Status {
    made.footprint = footprint(config, plan, state_types(*made.backend.ops));
    return {};
  };
  TRY_ASSIGN(
      LoadedWeights loaded,
      load_weights(checkpoint, config, *made.backend.device,
                   {.threads = options.backend.threads,
                    .mtp = options.drafts == DraftMethod::kMtp ? MtpUse::kRequired : MtpUse::kSkip,
                    .head = head,
                    .on_plan = note_sizes,
                    .progress = limited(hooks, "loading")}));
  TRY_ASSIGN(made.model,
             Qwen35Model::make(*made.backend.device, std::move(config), std::move(loaded.weights)));
  if (options.drafts == DraftMethod::kDflash) {
    TRY_ASSIGN(made.dflash, DflashModel::load(options.drafter, *made.backend.device));
    TRY(made.dflash->config.check_target(made.model.config));
    TRY(tap(options, made));
  }
  return made;
}

Status check_unique_layers(const BenchOptions& options, const Device& device,
                           const ModelConfig& config, const FormatChoice& format) {
  if (options.unique_layers == 0) return {};
  if (options.unique_layers > config.layers)
    return invalid(str_cat("--unique-layers: ", options.unique_layers, " of ", config.layers));
  if (options.unique_layers == config.layers) return {};
  const ModelConfig unique = first_layers(config, options.unique_layers);
  if (unique.count(LayerKind::kAttention) == 0)
    return invalid(str_cat("--unique-layers: the first ", options.unique_layers,
                           " layers have no full attention layer to repeat"));
  const int64_t bytes =
      random_weight_bytes(device, config, format, {.unique_layers = options.unique_layers}).layers;
  const int64_t least = kCacheMultiple * device.cache_bytes();
  if (bytes >= least) return {};
  const int64_t one = std::max<int64_t>(1, bytes / options.unique_layers);
  return invalid(str_cat("--unique-layers: ", options.unique_layers, " layers hold ",
                         bytes_text(bytes), ", less than ", kCacheMultiple,
                         " times the last-level cache (", bytes_text(least), "); take at least ",
                         std::min(config.layers, least / one + 1)));
}

RandomWeightOptions weight_options(const BenchOptions& options) {
  return {.threads = options.backend.threads,
          .unique_layers = options.unique_layers,
          .with_mtp = options.drafts == DraftMethod::kMtp,
          .draft_head_rows = options.draft_head_rows};
}

// A shape, before anything of it is made.
struct ShapePlan {
  ModelConfig config;
  FormatChoice format;
  std::optional<DflashConfig> dflash;
  WeightSpec draft_format;  // of its matrices
};

Status check_memory(const BenchOptions& options, const BenchModel& made, const ShapePlan& plan,
                    int64_t other_bytes) {
  const Device& device = *made.backend.device;
  const RunnerOptions runner_options = bench_runner_options(options);
  Qwen35Model sizes;  // without weights: the plan needs the config alone
  sizes.config = plan.config;
  RunnerMemory runner = ModelRunner::memory(sizes, device, *made.backend.ops, runner_options);
  int64_t drafter = 0;
  if (plan.dflash) {
    runner += DflashDrafter::memory(*plan.dflash, device, *made.backend.ops, runner_options);
    drafter = DflashModel::stored_bytes(*plan.dflash, device, plan.draft_format);
  }
  const int64_t beside = runner.total() + drafter + other_bytes;
  RandomWeightOptions weights = weight_options(options);
  const auto weight_bytes = [&] {
    return random_weight_bytes(device, plan.config, plan.format, weights).total();
  };
  const int64_t available = device.available_bytes(), all = weight_bytes();
  if (all + beside <= available) return {};
  std::string message = str_cat(
      "--shape ", options.shape, " --format ", options.format, " needs ", bytes_text(all + beside),
      " (weights ", bytes_text(all), ", state ", bytes_text(runner.kv_bytes + runner.state_bytes),
      ", scratch ", bytes_text(runner.scratch_bytes + runner.recorded_bytes),
      drafter == 0 ? "" : ", drafter " + bytes_text(drafter), ", measuring ",
      bytes_text(other_bytes), "), there is ", bytes_text(available));
  for (weights.unique_layers = plan.config.layers - 1; weights.unique_layers >= 4;
       --weights.unique_layers) {
    if (weight_bytes() + beside > available) continue;
    message += str_cat("; --unique-layers ", weights.unique_layers, " would fit");
    break;
  }
  return Error{ErrorCode::kResourceExhausted, message};
}

Result<ShapePlan> plan_shape(const BenchOptions& options) {
  ShapePlan plan;
  TRY_ASSIGN(plan.config, shape_config(options.shape));
  TRY_ASSIGN(plan.format,
             shape_formats(options.format, {.head = options.lm_head, .mtp = options.draft_format}));
  if (options.drafts == DraftMethod::kDflash) {
    TRY_ASSIGN(plan.dflash, dflash_shape(options.shape));
    TRY_ASSIGN(plan.draft_format,
               weight_spec_named("draft format", options.draft_format, kDraftFormats));
  }
  if (options.draft_head_rows > plan.config.vocab_size)
    return invalid(str_cat("--draft-head-rows: ", options.draft_head_rows, " of ",
                           plan.config.vocab_size, " tokens"));
  if (options.routing == Routing::kOverlapped && !plan.config.is_moe())
    return invalid(str_cat("--routing: ", options.shape, " has no experts to choose"));
  return plan;
}

Result<BenchModel> make_random(const BenchOptions& options, int64_t other_bytes,
                               const BenchHooks& hooks) {
  BenchModel made;
  TRY_ASSIGN(ShapePlan plan, plan_shape(options));
  TRY_ASSIGN(made.backend, make_backend(options.backend));
  Device& device = *made.backend.device;
  TRY(check_options(options, plan.config));
  TRY(check_unique_layers(options, device, plan.config, plan.format));
  TRY(check_memory(options, made, plan, other_bytes));
  RandomWeightOptions made_with = weight_options(options);
  made.footprint =
      footprint(plan.config, made_with.with_mtp, plan.format, state_types(*made.backend.ops));
  made_with.progress = limited(hooks, "making random weights");
  TRY_ASSIGN(ModelWeights weights,
             make_random_weights(device, plan.config, plan.format, made_with));
  TRY_ASSIGN(made.model, Qwen35Model::make(device, std::move(plan.config), std::move(weights)));
  if (plan.dflash) {
    TRY_ASSIGN(made.dflash, make_random_dflash(device, *plan.dflash, plan.draft_format));
    TRY(tap(options, made));
  }
  return made;
}

}  // namespace

RunnerOptions bench_runner_options(const BenchOptions& options) {
  RunnerOptions runner;
  const int64_t rows = options.kind == BenchKind::kDecode ? options.rows : 1;
  const int64_t positions =
      options.depth + options.tokens * rows + (options.kind == BenchKind::kDecode ? rows : 0);
  runner.max_sequences = options.sequences;
  runner.decode_rows = rows;
  runner.cache_tokens = options.sequences * pages_for(positions) * kPageTokens;
  return runner;
}

Result<BenchModel> make_bench_model(const BenchOptions& options, int64_t other_bytes,
                                    const BenchHooks& hooks) {
  return options.model.empty() ? make_random(options, other_bytes, hooks)
                               : load_checkpoint(options, hooks);
}

}  // namespace pewter
