#include "cli/inspect_report.h"

#include <algorithm>

#include "base/memory_info.h"
#include "checkpoint/quant_config.h"
#include "cli/table.h"
#include "model/activations.h"

namespace pewter {
namespace {

std::string bytes_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string architecture_text(const InspectReport& report) {
  const ModelConfig& c = report.config;
  Table table({Table::Align::kLeft, Table::Align::kLeft});
  table.row({"layers", str_cat(c.layers, ": ", c.count(LayerKind::kDelta), " gated delta net, ",
                               c.count(LayerKind::kAttention), " full attention")});
  table.row({"hidden size", str_cat(c.hidden_size)});
  table.row({"vocabulary", str_cat(grouped(c.vocab_size), " rows",
                                   c.tied_embeddings ? ", embedding and head shared" : "")});
  table.row({"longest context", str_cat(grouped(c.max_positions), " tokens")});
  table.row({"full attention",
             str_cat(c.query_heads, " query heads, ", c.kv_heads, " key/value heads of ",
                     c.head_dim, ", RoPE over ", c.rotary_dim, " with theta ", c.rope_theta)});
  table.row({"gated delta net", str_cat(c.key_heads, " key heads of ", c.key_dim, ", ",
                                        c.value_heads, " value heads of ", c.value_dim)});
  if (c.is_moe())
    table.row({"feed-forward",
               str_cat(c.experts, " experts of ", c.expert_width, ", ", c.experts_per_token,
                       " per token, and a shared one of ", c.shared_width)});
  else
    table.row({"feed-forward", str_cat("dense, ", c.intermediate_size, " wide")});
  table.row({"prediction layer", report.with_mtp ? "present" : "none"});
  table.row({"quantisation", report.quantisation});
  return table.text();
}

std::string weights_text(const InspectReport& report) {
  using enum Table::Align;
  Table table({kLeft, kLeft, kRight, kRight, kRight});
  const auto add = [&table](const ComponentBytes& row) {
    std::string name(row.name);
    std::ranges::replace(name, '_', ' ');
    table.row({name, row.formats, grouped(row.parameters), bytes_text(row.disk_bytes),
               bytes_text(row.token_bytes)});
  };
  table.row({"component", "format", "parameters", "on disk", "read per token"});
  table.rule();
  for (const ComponentBytes& row : report.footprint.components)
    if (row.name != component_name(Component::kMtp)) add(row);
  table.rule();
  add(report.footprint.total);
  std::string text = table.text();
  for (const ComponentBytes& row : report.footprint.components)
    if (row.name == component_name(Component::kMtp))
      text += str_cat("  The prediction layer has ", grouped(row.parameters), " parameters in ",
                      row.formats, ", ", bytes_text(row.disk_bytes), " on disk.\n");
  return text;
}

std::string state_text(const InspectReport& report) {
  const Footprint& bytes = report.footprint;
  Table table({Table::Align::kLeft, Table::Align::kRight, Table::Align::kLeft});
  table.row({"recurrent state", bytes_text(bytes.recurrent_bytes),
             "a sequence, however long; read and written for every token"});
  table.row({"convolution", bytes_text(bytes.convolution_bytes), "a sequence"});
  table.row({"keys and values", bytes_text(bytes.kv_token_bytes),
             "a token of context; all of them are read for every token"});
  return table.text();
}

Json architecture_json(const InspectReport& report) {
  const ModelConfig& c = report.config;
  Json::Array kinds;
  for (const LayerKind kind : c.layer_kinds)
    kinds.push_back(kind == LayerKind::kDelta ? "linear_attention" : "full_attention");
  return Json::Object{{"model_type", c.model_type},
                      {"layers", c.layers},
                      {"layer_kinds", std::move(kinds)},
                      {"hidden_size", c.hidden_size},
                      {"vocab_size", c.vocab_size},
                      {"max_positions", c.max_positions},
                      {"tied_embeddings", c.tied_embeddings},
                      {"query_heads", c.query_heads},
                      {"kv_heads", c.kv_heads},
                      {"head_dim", c.head_dim},
                      {"rotary_dim", c.rotary_dim},
                      {"rope_theta", c.rope_theta},
                      {"delta_key_heads", c.key_heads},
                      {"delta_value_heads", c.value_heads},
                      {"delta_key_dim", c.key_dim},
                      {"delta_value_dim", c.value_dim},
                      {"experts", c.experts},
                      {"experts_per_token", c.experts_per_token},
                      {"expert_width", c.expert_width},
                      {"shared_expert_width", c.shared_width},
                      {"intermediate_size", c.intermediate_size},
                      {"prediction_layer", report.with_mtp}};
}

}  // namespace

Result<InspectReport> gather_report(const ModelOptions& options) {
  TRY_ASSIGN(const Backend backend, make_backend(options.backend));
  TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options.model));
  InspectReport report;
  TRY_ASSIGN(ModelConfig config, ModelConfig::parse(checkpoint.config()));
  const Result<QuantConfig> quant = QuantConfig::parse(checkpoint.config());
  if (!quant) return quant.error().within("config.json");
  TRY(check_context(options.max_model_len, config));
  report.directory = checkpoint.directory();
  report.files = checkpoint.file_count();
  report.config = std::move(config);
  report.quantisation = quant->method_name();
  report.backend = backend.device->name();

  Findings findings;
  for (const std::string& warning : checkpoint.warnings()) findings.warn(warning);
  ModelWeights unfilled;  // the plan points into it
  TRY_ASSIGN(const LoadPlan plan, plan_load(checkpoint, report.config, MtpUse::kWhenPresent,
                                            unfilled, findings, options.lm_head));
  report.with_mtp = plan.with_mtp;
  const KvFormat kv = backend.ops->kv_format();
  report.footprint = footprint(report.config, plan,
                               {.activations = backend.ops->activation_dtype(),
                                .kv = kv == KvFormat::kF32 ? DType::kF32 : DType::kBF16});
  // `pewter run` leaves the prediction layer out.
  const int64_t weights = stored_bytes(plan, *backend.device, /*with_mtp=*/false);
  TRY_ASSIGN(report.memory, plan_model_memory(backend, report.config, weights,
                                              options.memory_options(/*with_mtp=*/false)));
  report.warnings = findings.warnings();
  return report;
}

std::string report_text(const InspectReport& report) {
  std::string text = str_cat(report.directory, ": ", report.config.model_type, ", ", report.files,
                             report.files == 1 ? " file" : " files", "\n\nArchitecture\n",
                             architecture_text(report), "\nWeights\n", weights_text(report),
                             "\nState\n", state_text(report), "\nMemory on ", report.backend, "\n",
                             memory_table(report.memory));
  if (!report.warnings.empty()) text += "\nWarnings\n";
  for (const std::string& warning : report.warnings) text += str_cat("  ", warning, "\n");
  return text;
}

Json report_json(const InspectReport& report) {
  const auto component_json = [](const ComponentBytes& row) {
    return Json::Object{{"component", row.name},
                        {"formats", row.formats},
                        {"parameters", row.parameters},
                        {"disk_bytes", row.disk_bytes},
                        {"stored_bytes", row.stored_bytes},
                        {"token_bytes", row.token_bytes}};
  };
  const Footprint& bytes = report.footprint;
  Json::Array components;
  for (const ComponentBytes& row : bytes.components) components.push_back(component_json(row));
  const MemoryPlan& memory = report.memory.plan;
  const RunnerMemory& runner = memory.runner_bytes;
  Json::Array warnings(report.warnings.begin(), report.warnings.end());
  return Json::Object{{"directory", report.directory},
                      {"files", report.files},
                      {"quantisation", report.quantisation},
                      {"architecture", architecture_json(report)},
                      {"components", std::move(components)},
                      {"total_without_prediction_layer", component_json(bytes.total)},
                      {"recurrent_bytes_per_sequence", bytes.recurrent_bytes},
                      {"convolution_bytes_per_sequence", bytes.convolution_bytes},
                      {"kv_bytes_per_token", bytes.kv_token_bytes},
                      {"memory", Json::Object{{"device", report.backend},
                                              {"context", memory.context},
                                              {"weight_bytes", memory.weight_bytes},
                                              {"kv_bytes", runner.kv_bytes},
                                              {"state_bytes", runner.state_bytes},
                                              {"scratch_bytes", runner.scratch_bytes},
                                              {"graph_bytes", runner.recorded_bytes},
                                              {"needed_bytes", memory.needed()},
                                              {"budget_bytes", memory.budget_bytes},
                                              {"available_bytes", report.memory.memory.free},
                                              {"fits", memory.fits()}}},
                      {"warnings", std::move(warnings)}};
}

}  // namespace pewter
