#include "cli/profile_report.h"

#include <algorithm>

#include "cli/table.h"

namespace pewter {
namespace {

double number(int64_t integer) { return static_cast<double>(integer); }

// A line of times and bytes of a whole step.
std::vector<std::string> step_row(const std::string& name, double seconds, double bytes,
                                  double ceiling) {
  const double reached = bytes / seconds;
  return {name,
          "",
          "",
          rate(seconds * 1e6),
          rate(bytes / 1e6),
          rate(reached / 1e9),
          percent(reached / ceiling)};
}

}  // namespace

std::string rate(double value) { return fixed(value, value < 10 ? 3 : value < 100 ? 2 : 1); }

std::string stage_label(const StageTime& stage, bool& starred) {
  std::string name = stage.stage;
  std::ranges::replace(name, '_', ' ');
  if (!stage.is_cached || stage.bytes <= 0) return name;
  starred = true;
  return name + " *";
}

double unexplained_seconds(const StepProfile& profile) {
  return profile.step_seconds - profile.stage_seconds();
}

std::string profile_text(const BenchResult& r) {
  using enum Table::Align;
  const StepProfile& profile = *r.profile;
  const double ceiling = r.ceiling_bytes_per_second;
  Table table({kLeft, kRight, kRight, kRight, kRight, kRight, kRight});
  table.row({"stage", "calls", "us a call", "us a step", "MB a call", "GB/s",
             str_cat("of ", r.bandwidth_kind)});
  table.rule();
  bool any_cached = false;
  const auto line = [&](const StageTime& stage) {
    const bool has_bytes = stage.bytes > 0;
    table.row({stage_label(stage, any_cached), str_cat(stage.calls), rate(stage.seconds * 1e6),
               rate(number(stage.calls) * stage.seconds * 1e6),
               has_bytes ? rate(stage.bytes / 1e6) : "",
               has_bytes ? rate(stage.bytes_per_second() / 1e9) : "",
               has_bytes ? percent(stage.bytes_per_second() / ceiling) : ""});
  };
  for (const StageTime& stage : profile.stages) line(stage);
  table.rule();
  for (const StageTime& block : profile.blocks) line(block);
  if (!profile.blocks.empty()) table.rule();
  table.row(step_row("stages", profile.stage_seconds(), profile.bytes(), ceiling));
  table.row(step_row("replayed", profile.replay_seconds, profile.bytes(), ceiling));
  table.row(step_row("step", profile.step_seconds, profile.bytes(), ceiling));
  table.row({"unexplained", "", "", rate(unexplained_seconds(profile) * 1e6), "", "", ""});
  std::string text = str_cat("\n", table.text(), "\n");
  if (any_cached) text += kStarNote;
  return text +
         "  Each stage was run by itself, for every layer in turn, then each block of them as a "
         "step "
         "runs it;\n  \"replayed\": all in their order.\n";
}

Json profile_json(const BenchResult& r) {
  const StepProfile& profile = *r.profile;
  const auto times = [&](const std::vector<StageTime>& all) {
    Json::Array list;
    for (const StageTime& stage : all)
      list.emplace_back(
          Json::Object{{"stage", stage.stage},
                       {"calls", stage.calls},
                       {"us_per_call", stage.seconds * 1e6},
                       {"bytes_per_call", stage.bytes},
                       {"gb_per_second", stage.bytes_per_second() / 1e9},
                       {"share_of_ceiling", stage.bytes_per_second() / r.ceiling_bytes_per_second},
                       {"is_cached", stage.is_cached}});
    return list;
  };
  return Json::Object{{"stages", times(profile.stages)},
                      {"blocks", times(profile.blocks)},
                      {"distinct_experts", profile.distinct_experts},
                      {"bytes_per_step", profile.bytes()},
                      {"stages_us", profile.stage_seconds() * 1e6},
                      {"replayed_us", profile.replay_seconds * 1e6},
                      {"step_us", profile.step_seconds * 1e6},
                      {"unexplained_us", unexplained_seconds(profile) * 1e6}};
}

std::string profile_csv(const BenchResult& r) {
  const StepProfile& profile = *r.profile;
  std::string text =
      "stage,calls,us_per_call,bytes_per_call,gb_per_second,share_of_ceiling,is_cached\n";
  const auto line = [&](const StageTime& t) {
    text += str_cat(t.stage, ",", t.calls, ",", fixed(t.seconds * 1e6, 3), ",", fixed(t.bytes, 0),
                    ",", fixed(t.bytes_per_second() / 1e9, 3), ",",
                    fixed(t.bytes_per_second() / r.ceiling_bytes_per_second, 4), ",",
                    t.is_cached ? 1 : 0, "\n");
  };
  for (const StageTime& stage : profile.stages) line(stage);
  for (const StageTime& block : profile.blocks) line(block);
  for (const auto& [name, seconds] :
       {std::pair("replayed", profile.replay_seconds), std::pair("step", profile.step_seconds)})
    line({.stage = name, .calls = 1, .seconds = seconds, .bytes = profile.bytes()});
  return text;
}

}  // namespace pewter
