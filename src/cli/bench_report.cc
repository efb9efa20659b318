#include "cli/bench_report.h"

#include <algorithm>

#include "base/memory_info.h"
#include "cli/profile_report.h"
#include "cli/speculative_config.h"
#include "cli/table.h"

namespace pewter {
namespace {

constexpr double kGiga = 1e9;

bool decodes(const BenchResult& r) { return r.options.kind == BenchKind::kDecode; }

// Bytes or operations a second at the best repeat, and the most there could be.
double reached(const BenchResult& r) {
  return r.best() * (decodes(r) ? r.bytes_per_token : r.flops_per_token);
}
double ceiling(const BenchResult& r) {
  return decodes(r) ? r.ceiling_bytes_per_second : r.arithmetic.flops_per_second;
}

std::string model_text(const BenchResult& r) {
  return r.options.model.empty() ? str_cat(r.options.shape, ", ", r.options.format)
                                 : r.options.model;
}

// "bf16: embedding, head; int4_group128: attention, ..."
std::string formats_text(const Footprint& footprint) {
  std::vector<std::pair<std::string, std::string>> by_format;
  for (const ComponentBytes& component : footprint.components) {
    std::string name(component.name);
    std::ranges::replace(name, '_', ' ');
    if (component.name == component_name(Component::kSmall))
      name = "norms, convolution, A_log, dt_bias";
    const auto found = std::ranges::find(by_format, component.formats,
                                         &std::pair<std::string, std::string>::first);
    if (found == by_format.end())
      by_format.emplace_back(component.formats, name);
    else
      found->second += ", " + name;
  }
  std::string text;
  for (const auto& [format, names] : by_format) text += str_cat("  ", format, ": ", names, "\n");
  return text;
}

std::string work_text(const BenchResult& r) {
  const BenchOptions& o = r.options;
  std::string text = decodes(r) ? str_cat("decode ", o.tokens, " steps")
                                : str_cat("prefill ", o.tokens, " tokens");
  if (decodes(r) && (o.rows > 1 || o.sequences > 1))
    text += str_cat(" of ", o.sequences, o.sequences == 1 ? " sequence x " : " sequences x ",
                    o.rows, o.rows == 1 ? " row" : " rows");
  if (o.forced_tokens > 0) text += str_cat(", ", fixed(o.forced_tokens, 2), " of them counting");
  if (o.drafts != DraftMethod::kNone) text += str_cat(", guesses by ", draft_method_name(o.drafts));
  if (o.draft_head_rows > 0) text += str_cat(" among ", o.draft_head_rows, " tokens");
  if (o.routing == Routing::kOverlapped) text += ", overlapped routing";
  return text + str_cat(" at depth ", o.depth, ", ", r.processors);
}

std::string microseconds(double seconds) { return fixed(1e6 * seconds, 1) + " us"; }

void add_drafting(const BenchResult& r, Table& table) {
  if (r.draft) {
    const DraftCost& d = *r.draft;
    table.row({"drafting", microseconds(d.seconds),
               str_cat("a step, ", percent(d.seconds / r.step_seconds()), " of it")});
    if (d.bytes > 0)
      table.row({"", rate(d.bytes / 1e6) + " MB",
                 str_cat("needed, ", percent(d.bytes_per_second() / ceiling(r)),
                         " of the ceiling: ", fixed(ceiling(r) / d.bytes_per_second(), 2),
                         " times as long as at it")});
  }
  if (r.rollback)
    table.row({"rolling back", percent(r.rollback->extra(), 2),
               str_cat("of a step: ", microseconds(r.rollback->after_part), " after ",
                       r.rollback->rows, " accepted rows, ", microseconds(r.rollback->after_all),
                       " after ", r.options.rows)});
}

}  // namespace

std::string bench_text(const BenchResult& r) {
  using enum Table::Align;
  Table table({kLeft, kRight, kLeft});
  table.row({"best", rate(r.best()) + " tok/s", str_cat("of ", r.tokens_per_second.size())});
  table.row({"median", rate(median(r.tokens_per_second)) + " tok/s", ""});
  if (decodes(r)) {
    table.row({"needed", rate(r.bytes_per_token / 1e6) + " MB",
               r.config.is_moe() ? str_cat("a token, with ", fixed(r.distinct_experts, 1), " of ",
                                           r.config.experts, " experts a layer and step")
                                 : "a token"});
    table.row({"reached", rate(reached(r) / kGiga) + " GB/s", ""});
    table.row({"ceiling", rate(ceiling(r) / kGiga) + " GB/s",
               str_cat(r.bandwidth_kind, " bandwidth, in the same process")});
  } else {
    table.row({"needed", rate(r.flops_per_token / kGiga) + " GFLOP", "a token"});
    table.row({"reached", rate(reached(r) / kGiga) + " GFLOP/s", ""});
    table.row({"ceiling", rate(ceiling(r) / kGiga) + " GFLOP/s",
               r.arithmetic.instruction +
                   (r.arithmetic.is_native ? "" : ": this CPU has no dot product of the type")});
  }
  table.row({"share", percent(reached(r) / ceiling(r)), "of the ceiling"});
  add_drafting(r, table);
  return str_cat(model_text(r), " on ", r.device, ": ", work_text(r), "\n",
                 formats_text(r.footprint), "\n", table.text(), r.profile ? profile_text(r) : "");
}

Json bench_json(const BenchResult& r) {
  const BenchOptions& o = r.options;
  Json::Object formats;
  for (const ComponentBytes& component : r.footprint.components)
    formats.emplace_back(std::string(component.name), component.formats);
  Json::Object json = {{"bench", decodes(r) ? "decode" : "prefill"}};
  const auto set = [&json](const char* key, Json value) {
    json.emplace_back(key, std::move(value));
  };
  if (o.model.empty()) {
    set("shape", o.shape);
    set("format", o.format);
    set("head", o.lm_head);
    set("unique_layers", o.unique_layers == 0 ? r.config.layers : o.unique_layers);
  } else {
    set("model", o.model);
  }
  set("formats", std::move(formats));
  set("device", r.device);
  set("threads", r.threads);
  set("processors", r.processors);
  set("tokens", o.tokens);
  set("depth", o.depth);
  set("tokens_per_second", r.best());
  set("tokens_per_second_median", median(r.tokens_per_second));
  set("repeats", Json::Array(r.tokens_per_second.begin(), r.tokens_per_second.end()));
  if (decodes(r)) {
    set("rows", o.rows);
    set("sequences", o.sequences);
    if (o.forced_tokens > 0) set("forced_tokens_per_step", o.forced_tokens);
    if (o.drafts != DraftMethod::kNone) set("speculate", std::string(draft_method_name(o.drafts)));
    if (r.draft) {
      if (o.model.empty() && o.drafts != DraftMethod::kSuffix) set("draft_format", o.draft_format);
      if (o.draft_head_rows > 0) set("draft_head_rows", o.draft_head_rows);
      set("draft_us", 1e6 * r.draft->seconds);
      set("draft_bytes", r.draft->bytes);
      set("draft_share_of_ceiling", r.draft->bytes_per_second() / ceiling(r));
      set("draft_share_of_step", r.draft->seconds / r.step_seconds());
    }
    if (o.model.empty())
      set("routing", o.routing == Routing::kOverlapped ? "overlapped" : "uniform");
    if (r.rollback) {
      set("step_us_after_part", 1e6 * r.rollback->after_part);
      set("step_us_after_all", 1e6 * r.rollback->after_all);
      set("rollback_share_of_step", r.rollback->extra());
    }
    set("distinct_experts", r.distinct_experts);
    set("bytes_per_token", r.bytes_per_token);
    set("step_bytes", Json::Object{{"weights", r.step.weights},
                                   {"experts", r.step.experts},
                                   {"state", r.step.state},
                                   {"kv", r.step.kv}});
    set("gb_per_second", reached(r) / kGiga);
    set("ceiling_gb_per_second", ceiling(r) / kGiga);
  } else {
    set("flops_per_token", r.flops_per_token);
    set("flops_per_second", reached(r));
    set("ceiling_flops_per_second", ceiling(r));
    set("ceiling_instruction", r.arithmetic.instruction);
    set("ceiling_is_native", r.arithmetic.is_native);
  }
  set("share_of_ceiling", reached(r) / ceiling(r));
  if (r.profile) set("profile", profile_json(r));
  return json;
}

}  // namespace pewter
