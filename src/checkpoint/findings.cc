#include "checkpoint/findings.h"

#include <algorithm>
#include <tuple>

namespace pewter {

void Findings::fault(std::string_view file, std::string_view tensor, std::string_view reason,
                     ErrorCode code) {
  const std::lock_guard lock(mutex_);
  code_ = count_ == 0 || code_ == code ? code : ErrorCode::kCorruptData;
  ++count_;
  if (faults_.size() < kKept)
    faults_.push_back({std::string(file), std::string(tensor), std::string(reason)});
}

void Findings::warn(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(warnings_, text) != warnings_.end()) return;
  if (warnings_.size() < kListed)
    warnings_.emplace_back(text);
  else
    ++more_warnings_;
}

int64_t Findings::fault_count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

std::vector<std::string> Findings::warnings() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> warnings = warnings_;
  if (more_warnings_ > 0) warnings.push_back(str_cat("… and ", more_warnings_, " more warnings"));
  return warnings;
}

Error Findings::to_error(std::string_view subject) const {
  const std::lock_guard lock(mutex_);
  // Threads report in any order; the message should not depend on it.
  std::vector<Fault> sorted = faults_;
  std::ranges::stable_sort(sorted, {}, [](const Fault& f) { return std::tie(f.file, f.tensor); });
  std::string message = str_cat(subject, ": ", count_, count_ == 1 ? " fault" : " faults");
  const size_t listed = std::min(sorted.size(), kListed);
  for (size_t i = 0; i < listed; ++i) {
    message += "\n  ";
    for (const std::string* part : {&sorted[i].file, &sorted[i].tensor})
      if (!part->empty()) message += *part + ": ";
    message += sorted[i].reason;
  }
  const int64_t more = count_ - static_cast<int64_t>(listed);
  if (more > 0) message += str_cat("\n  … and ", more, " more");
  return Error{code_, std::move(message)};
}

}  // namespace pewter
