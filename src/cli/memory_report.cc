#include "cli/memory_report.h"

#include <cmath>

#include "base/memory_info.h"
#include "base/str_cat.h"
#include "cli/table.h"
#include "engine/dflash_drafter.h"

namespace pewter {
namespace {

// Beyond this share a driver or a desktop has no room left.
constexpr double kMostUtilization = 0.98;

std::string bytes_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

bool is_host(const MemoryReport& report) { return report.memory.kind == MemoryKind::kHost; }

// Where the budget comes from.
std::string budget_text(const MemoryReport& report) {
  const DeviceMemory& memory = report.memory;
  if (is_host(report))
    return str_cat(report.limits.host_bytes > 0 ? "as --memory-gb says; " : "of ",
                   bytes_text(memory.free), report.limits.host_bytes > 0 ? " are free" : " free");
  std::string text =
      str_cat("up to ", fixed(report.limits.gpu_utilization, 2), " of ", bytes_text(memory.total),
              ", ", bytes_text(memory.total - memory.free), " of it taken");
  if (memory.kind == MemoryKind::kUnified)
    text += str_cat("; ", bytes_text(kUnifiedFloor), " stay free for the host");
  return text;
}

// A setting under which the plan would fit; empty when there is none.
std::string larger_budget(const MemoryReport& report) {
  const int64_t needed = report.plan.needed();
  const DeviceMemory& memory = report.memory;
  if (is_host(report))
    return report.limits.host_bytes > 0 && needed <= memory.free
               ? str_cat("--memory-gb ",
                         fixed(std::ceil(static_cast<double>(needed) / 1e8) / 10, 1))
               : "";
  const double taken = static_cast<double>(memory.total - memory.free + needed);
  const double share = std::ceil(100 * taken / static_cast<double>(memory.total)) / 100;
  const bool floored = memory.kind == MemoryKind::kUnified && needed > memory.free - kUnifiedFloor;
  return share <= kMostUtilization && !floored
             ? str_cat("--gpu-memory-utilization ", fixed(share, 2))
             : "";
}

std::string advice(const MemoryReport& report) {
  const MemoryPlan& plan = report.plan;
  std::string text;
  const auto add = [&text](const std::string& what) {
    if (!what.empty()) text += (text.empty() ? "" : " or ") + what;
  };
  if (plan.longest > 0 && plan.longest < plan.context)
    add(str_cat("--max-model-len ", plan.longest));
  const int64_t for_cache = plan.budget_bytes - plan.needed() + plan.runner_bytes.kv_bytes;
  if (report.cache_bytes > 0 && for_cache > 0) add(str_cat("--kv-cache-memory-bytes ", for_cache));
  add(larger_budget(report));
  if (!text.empty()) return text + " would fit";
  if (plan.weight_bytes > plan.budget_bytes)
    return "the weights alone do not fit: take a smaller or more quantised model";
  return "fewer sequences (--max-num-seqs) or tokens a step (--max-num-batched-tokens) need less";
}

}  // namespace

Result<MemoryReport> plan_model_memory(
    const std::string& device, const DeviceMemory& memory, int64_t model_positions,
    int64_t weight_bytes, const MemoryOptions& options,
    const std::function<RunnerMemory(const RunnerOptions&)>& bytes_of) {
  if (options.limits.host_bytes > 0 && memory.kind != MemoryKind::kHost)
    return Error{ErrorCode::kInvalidArgument, str_cat("--memory-gb is for the CPU; of ", device,
                                                      " --gpu-memory-utilization sets the share")};
  MemoryReport report{.device = device,
                      .memory = memory,
                      .limits = options.limits,
                      .cache_bytes = options.cache_bytes,
                      .plan = {}};
  TRY_ASSIGN(report.plan, plan_memory({.weight_bytes = weight_bytes,
                                       .budget_bytes = memory_budget(memory, options.limits),
                                       .model_positions = model_positions,
                                       .context = options.context,
                                       .cache_bytes = options.cache_bytes,
                                       .runner = options.runner},
                                      bytes_of));
  return report;
}

Result<MemoryReport> plan_model_memory(const Backend& backend, const ModelConfig& config,
                                       int64_t weight_bytes, const MemoryOptions& options) {
  Qwen35Model model;  // without weights: sizes need the config alone
  model.config = config;
  if (options.with_mtp) model.weights.mtp.emplace();
  const Device& device = *backend.device;
  const std::optional<DflashPlan>& drafter = options.drafter;
  if (drafter) {
    model.taps = drafter->config.taps;
    weight_bytes += drafter->stored_bytes;
  }
  const auto bytes_of = [&](RunnerOptions runner) {
    if (drafter) runner.beside = DflashModel::limits(drafter->config);
    RunnerMemory memory = ModelRunner::memory(model, device, *backend.ops, runner);
    if (drafter) memory += DflashDrafter::memory(drafter->config, device, *backend.ops, runner);
    return memory;
  };
  return plan_model_memory(std::string(device.name()), device.memory(), config.max_positions,
                           weight_bytes, options, bytes_of);
}

std::string memory_table(const MemoryReport& report) {
  const MemoryPlan& plan = report.plan;
  const int64_t sequences = plan.runner.max_sequences;
  Table table({Table::Align::kLeft, Table::Align::kRight, Table::Align::kLeft});
  table.row({"weights", bytes_text(plan.weight_bytes), ""});
  table.row({"keys and values", bytes_text(plan.runner_bytes.kv_bytes),
             sequences == 1 ? str_cat(grouped(plan.context), " tokens of context")
                            : str_cat(grouped(plan.runner.cache_tokens), " tokens, up to ",
                                      grouped(plan.context), " a sequence")});
  table.row({"recurrent state", bytes_text(plan.runner_bytes.state_bytes),
             sequences == 1 ? "one sequence, with its tape"
                            : str_cat(sequences, " sequences, with their tapes")});
  table.row({"scratch", bytes_text(plan.runner_bytes.scratch_bytes), "of one step"});
  if (plan.runner_bytes.recorded_bytes > 0)
    table.row({"graphs", bytes_text(plan.runner_bytes.recorded_bytes), "recorded steps"});
  table.rule();
  table.row({"needed", bytes_text(plan.needed()), plan.fits() ? "it fits" : "IT DOES NOT FIT"});
  table.row({"budget", bytes_text(plan.budget_bytes), budget_text(report)});
  return table.text();
}

Status check_fits(const std::string& model, const MemoryReport& report) {
  const MemoryPlan& plan = report.plan;
  if (plan.fits()) return {};
  const RunnerMemory& runner = plan.runner_bytes;
  return Error{
      ErrorCode::kResourceExhausted,
      str_cat(model, ": needs ", bytes_text(plan.needed()), " on ", report.device, " and may take ",
              bytes_text(plan.budget_bytes), " (", budget_text(report), "): weights ",
              bytes_text(plan.weight_bytes), ", keys and values ", bytes_text(runner.kv_bytes),
              " (", plan.runner.cache_tokens, " tokens)", ", recurrent state ",
              bytes_text(runner.state_bytes), " (", plan.runner.max_sequences,
              plan.runner.max_sequences == 1 ? " sequence" : " sequences", "), scratch ",
              bytes_text(runner.scratch_bytes + runner.recorded_bytes), "; ", advice(report))};
}

}  // namespace pewter
