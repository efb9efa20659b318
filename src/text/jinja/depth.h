// Counts one level of an interpreter's recursion for as long as it lives.
#pragma once

#include "text/jinja/interpreter.h"

namespace pewter::jinja {

class Interpreter::Depth {
 public:
  explicit Depth(Interpreter& interpreter) : interpreter_(interpreter) { ++interpreter_.depth_; }
  ~Depth() { --interpreter_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

  Status check() const {
    const int most = interpreter_.budget_.limits().max_depth;
    if (interpreter_.depth_ <= most) return {};
    return Error{ErrorCode::kResourceExhausted,
                 str_cat("nests macros and loops deeper than ", most, " levels")};
  }

 private:
  Interpreter& interpreter_;
};

}  // namespace pewter::jinja
