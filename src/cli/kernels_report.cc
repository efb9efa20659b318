#include "cli/kernels_report.h"

#include "cli/profile_report.h"
#include "cli/table.h"

namespace pewter {

std::string kernels_text(const KernelResult& r) {
  using enum Table::Align;
  std::string text = str_cat("ops by themselves on ", r.device, ", ", r.processors, ": read ",
                             rate(r.read_bytes_per_second / 1e9), " GB/s, copy ",
                             rate(r.copy_bytes_per_second / 1e9), " GB/s\n");
  Table table({kLeft, kLeft, kRight, kRight, kRight, kRight, kRight, kRight, kRight, kRight});
  bool any_cached = false;
  std::string shape;
  for (const KernelTime& kernel : r.kernels) {
    if (kernel.shape != shape) {
      if (!shape.empty()) table.rule();
      shape = kernel.shape;
      table.row(
          {shape, "format", "n x k", "rows", "depth", "us", "MB", "GB/s", "of copy", "of read"});
    }
    const StageTime& t = kernel.time;
    const bool has_bytes = t.bytes > 0;
    const double reached = t.bytes_per_second();
    table.row({stage_label(t, any_cached), kernel.format,
               kernel.n > 0 ? str_cat(kernel.n, " x ", kernel.k) : "", str_cat(kernel.rows),
               kernel.n > 0 ? "" : str_cat(kernel.depth), rate(t.seconds * 1e6),
               has_bytes ? rate(t.bytes / 1e6) : "", has_bytes ? rate(reached / 1e9) : "",
               has_bytes ? percent(reached / r.copy_bytes_per_second) : "",
               has_bytes ? percent(reached / r.read_bytes_per_second) : ""});
  }
  text += "\n" + table.text();
  if (any_cached) text += str_cat("\n", kStarNote);
  return text;
}

Json kernels_json(const KernelResult& r) {
  Json::Array kernels;
  for (const KernelTime& kernel : r.kernels) {
    const StageTime& t = kernel.time;
    kernels.emplace_back(
        Json::Object{{"op", t.stage},
                     {"shape", kernel.shape},
                     {"format", kernel.format},
                     {"n", kernel.n},
                     {"k", kernel.k},
                     {"rows", kernel.rows},
                     {"depth", kernel.depth},
                     {"distinct_experts", kernel.distinct_experts},
                     {"us", t.seconds * 1e6},
                     {"bytes", t.bytes},
                     {"gb_per_second", t.bytes_per_second() / 1e9},
                     {"share_of_copy", t.bytes_per_second() / r.copy_bytes_per_second},
                     {"share_of_read", t.bytes_per_second() / r.read_bytes_per_second},
                     {"is_cached", t.is_cached}});
  }
  return Json::Object{{"bench", "kernels"},
                      {"device", r.device},
                      {"processors", r.processors},
                      {"read_gb_per_second", r.read_bytes_per_second / 1e9},
                      {"copy_gb_per_second", r.copy_bytes_per_second / 1e9},
                      {"kernels", std::move(kernels)}};
}

std::string kernels_csv(const KernelResult& r) {
  std::string text =
      "op,shape,format,n,k,rows,depth,distinct_experts,us,bytes,gb_per_second,share_of_copy,"
      "share_of_read,is_cached\n";
  for (const KernelTime& kernel : r.kernels) {
    const StageTime& t = kernel.time;
    const double reached = t.bytes_per_second();
    text += str_cat(t.stage, ",", kernel.shape, ",", kernel.format, ",", kernel.n, ",", kernel.k,
                    ",", kernel.rows, ",", kernel.depth, ",", fixed(kernel.distinct_experts, 0),
                    ",", fixed(t.seconds * 1e6, 3), ",", fixed(t.bytes, 0), ",",
                    fixed(reached / 1e9, 3), ",", fixed(reached / r.copy_bytes_per_second, 4), ",",
                    fixed(reached / r.read_bytes_per_second, 4), ",", t.is_cached ? 1 : 0, "\n");
  }
  return text;
}

}  // namespace pewter
