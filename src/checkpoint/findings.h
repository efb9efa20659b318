// What a checkpoint has wrong, collected rather than reported one at a time: a person fixing a
// 100 GB download wants the whole list. Faults stop the load, warnings do not. Safe to use from
// several threads.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "base/result.h"

namespace pewter {

struct Fault {
  std::string file;    // may be empty when the fault belongs to no file: a missing tensor
  std::string tensor;  // or module; may be empty when the fault is the file's
  std::string reason;
};

class Findings {
 public:
  static constexpr size_t kListed = 20;  // lines of an error message, and warnings

  void fault(std::string_view file, std::string_view tensor, std::string_view reason,
             ErrorCode code = ErrorCode::kCorruptData);
  // Repeats of one text are kept once, kListed texts at most; the rest is counted in a last line.
  void warn(std::string_view text);

  bool has_faults() const { return fault_count() > 0; }
  int64_t fault_count() const;
  std::vector<std::string> warnings() const;
  // "SUBJECT: 3 faults" and a line for each of the first kListed, in file and tensor order. The
  // code is kUnsupported or kNotFound when every fault has it, kCorruptData otherwise.
  Error to_error(std::string_view subject) const;

 private:
  // A wrong config can make every one of 100 000 tensors a fault; beyond this they are only
  // counted.
  static constexpr size_t kKept = 1000;

  mutable std::mutex mutex_;
  std::vector<Fault> faults_;
  std::vector<std::string> warnings_;
  int64_t count_ = 0, more_warnings_ = 0;
  ErrorCode code_ = ErrorCode::kCorruptData;
};

}  // namespace pewter
