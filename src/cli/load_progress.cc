#include "cli/load_progress.h"

#include <unistd.h>

#include <algorithm>

#include "base/memory_info.h"
#include "cli/terminal.h"

namespace pewter {
namespace {

constexpr size_t kBarCells = 28;
constexpr std::string_view kClearLine = "\r\x1b[K";

}  // namespace

LoadProgress::LoadProgress(std::string name, bool quiet)
    : name_(std::move(name)), quiet_(quiet), bar_(!quiet && is_terminal(STDERR_FILENO)) {}

LoadProgress::~LoadProgress() { clear(); }

void LoadProgress::clear() {
  if (drawn_) write_text(STDERR_FILENO, kClearLine);
  drawn_ = false;
}

void LoadProgress::plan(const MemoryReport& report) {
  if (quiet_) return;
  write_text(STDERR_FILENO, str_cat("Memory on ", report.device, "\n", memory_table(report)));
}

void LoadProgress::update(int64_t done_bytes, int64_t total_bytes) {
  if (!bar_) return;
  const auto done = static_cast<double>(done_bytes), total = static_cast<double>(total_bytes);
  const double share = total > 0 ? std::clamp(done / total, 0.0, 1.0) : 0.0;
  const auto full = static_cast<size_t>(share * kBarCells);
  const double seconds = watch_.seconds();
  write_text(STDERR_FILENO,
             str_cat(kClearLine, "Loading ", name_, " [", std::string(full, '#'),
                     std::string(kBarCells - full, '.'), "] ", static_cast<int>(share * 100), "% ",
                     format_bytes(done), " of ", format_bytes(total), ", ",
                     format_bytes(seconds > 0 ? done / seconds : 0), "/s"));
  drawn_ = true;
}

void LoadProgress::finish(const LoadReport& report) {
  clear();
  if (quiet_) return;
  write_text(
      STDERR_FILENO,
      str_cat("Loaded ", name_, ": ", format_bytes(static_cast<double>(report.file_bytes)), " in ",
              fixed(report.seconds, 2), " s, ", format_bytes(report.bytes_per_second()), "/s\n"));
}

}  // namespace pewter
