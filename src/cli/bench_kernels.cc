#include "cli/bench_kernels.h"

#include <algorithm>
#include <cmath>

#include "cli/bench_session.h"
#include "cli/product_timer.h"
#include "model/qwen35/random_weights.h"
#include "model/qwen35/shapes.h"

namespace pewter {
namespace {

// Stages that are more than a product.
constexpr std::string_view kStages[] = {"delta_rule", "attention_prepare", "attention", "route",
                                        "experts_up", "experts_down",      "sampling"};

bool is_attention(std::string_view stage) { return stage.starts_with("attention"); }

class KernelBench {
 public:
  KernelBench(const KernelOptions& options, const BenchHooks& hooks, KernelResult& result)
      : options_(options), hooks_(hooks), result_(result) {}

  Status run(const std::string& shape) {
    TRY_ASSIGN(const ModelConfig config, shape_config(shape));
    TRY(run_products(shape, config));
    return options_.format.empty() ? run_stages(shape, config) : Status();
  }

 private:
  bool is_wanted(std::string_view op) const {
    return op.find(options_.only) != std::string_view::npos;
  }
  void show(std::string_view shape, std::string_view what) const {
    if (hooks_.progress) hooks_.progress(str_cat(shape, ": ", what));
  }

  Status run_products(const std::string& shape, const ModelConfig& config) {
    std::vector<ProductShape> products = product_shapes(config);
    std::erase_if(products, [&](const ProductShape& p) { return !is_wanted(p.name); });
    if (products.empty()) return {};
    const int64_t most_rows = std::ranges::max(options_.rows);
    TRY_ASSIGN(ProductTimer timer, ProductTimer::make(options_.backend, config, most_rows));
    for (const ProductShape& product : products)
      for (const auto& [name, spec] : product_formats()) {
        if (!options_.format.empty() && options_.format != name) continue;
        show(shape, str_cat(product.name, " ", name));
        TRY(timer.load(product, spec));
        for (const int64_t rows : options_.rows)
          result_.kernels.push_back({.time = timer.time(rows),
                                     .shape = shape,
                                     .format = std::string(name),
                                     .n = product.n,
                                     .k = product.k,
                                     .rows = rows});
      }
    return {};
  }

  // Whole stages: four layers of every kind, or as many as the cache cannot hold.
  Status run_stages(const std::string& shape, const ModelConfig& config) {
    if (std::ranges::none_of(kStages, [&](std::string_view s) { return is_wanted(s); })) return {};
    BenchOptions bench{.shape = shape,
                       .format = config.is_moe() ? "hybrid" : "int4",
                       .lm_head = "int8",
                       .backend = options_.backend,
                       .tokens = 1,
                       .depth = std::ranges::max(options_.depths),
                       .rows = std::ranges::max(options_.rows)};
    TRY_ASSIGN(bench.unique_layers, fewest_layers(bench, config));
    TRY_ASSIGN(BenchModel made, make_bench_model(bench, 0, hooks_));
    for (const int64_t depth : options_.depths)
      for (const int64_t rows : options_.rows) {
        bench.depth = depth;
        bench.rows = rows;
        show(shape, str_cat("stages, ", rows, " rows at depth ", depth));
        TRY_ASSIGN(const std::unique_ptr<BenchSession> session,
                   BenchSession::make(bench, hooks_, made));
        TRY_ASSIGN(const StepProfile profile, session->profile([&](std::string_view stage) {
          // Others do not know how many positions are before them.
          return std::ranges::find(kStages, stage) != std::end(kStages) && is_wanted(stage) &&
                 (depth == options_.depths[0] || is_attention(stage));
        }));
        for (const StageTime& stage : profile.stages)
          result_.kernels.push_back({.time = stage,
                                     .shape = shape,
                                     .format = format_of(stage.stage, bench.format),
                                     .rows = rows,
                                     .depth = depth,
                                     .distinct_experts = stage.stage.starts_with("experts")
                                                             ? profile.distinct_experts
                                                             : 0});
      }
    return {};
  }

  static std::string format_of(const std::string& stage, const std::string& model) {
    if (stage == "route") return "bf16";
    return stage.starts_with("experts") ? model : "";
  }

  static Result<int64_t> fewest_layers(const BenchOptions& bench, const ModelConfig& config) {
    TRY_ASSIGN(const FormatChoice format, shape_formats(bench.format, {.head = bench.lm_head}));
    TRY_ASSIGN(const Backend backend, make_backend(bench.backend));
    const Device& device = *backend.device;
    for (int64_t layers = 4; layers < config.layers; layers += 4)
      if (random_weight_bytes(device, config, format, {.unique_layers = layers}).layers >=
          kCacheMultiple * device.cache_bytes())
        return layers;
    return config.layers;
  }

  const KernelOptions& options_;
  const BenchHooks& hooks_;
  KernelResult& result_;
};

}  // namespace

Result<KernelResult> run_kernel_bench(const KernelOptions& options, const BenchHooks& hooks) {
  KernelResult result;
  TRY_ASSIGN(const Backend backend, make_backend(options.backend));
  result.device = backend.name;
  const auto measure_ceilings = [&]() -> Status {
    TRY_ASSIGN(const std::unique_ptr<Ceilings> ceilings, make_ceilings(options.backend));
    result.processors = ceilings->processors();
    for (const auto& [traffic, best] : {std::pair(Traffic::kRead, &result.read_bytes_per_second),
                                        std::pair(Traffic::kCopy, &result.copy_bytes_per_second)})
      *best = std::max(*best, ceilings->bandwidth(traffic));
    return {};
  };
  for (const std::string& shape : options.shapes) TRY(shape_config(shape));
  const auto has_name = [&](const ProductFormat& format) { return format.name == options.format; };
  if (!options.format.empty() && std::ranges::none_of(product_formats(), has_name))
    return Error{ErrorCode::kInvalidArgument,
                 "format: \"" + options.format + "\" is none of bf16, fp8, int4, int8"};
  TRY(measure_ceilings());
  KernelBench bench(options, hooks, result);
  for (const std::string& shape : options.shapes) {
    TRY(bench.run(shape));
    TRY(measure_ceilings());
  }
  if (result.kernels.empty())
    return Error{ErrorCode::kInvalidArgument, str_cat("--only: no op of ", options.shapes[0],
                                                      " is named like \"", options.only, "\"")};
  return result;
}

}  // namespace pewter
