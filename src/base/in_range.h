// The check of a number against its limits, and its words.
#pragma once

#include <concepts>

#include "base/result.h"

namespace pewter {

// Error: kInvalidArgument, "top_p: 2 is outside [0, 1]"; for a NaN too.
template <typename Number>
Status in_range(std::string_view field, Number value,
                std::conditional_t<std::integral<Number>, int64_t, double> least,
                std::conditional_t<std::integral<Number>, int64_t, double> most) {
  if (value >= least && value <= most) return {};
  return Error{ErrorCode::kInvalidArgument,
               str_cat(field, ": ", value, " is outside [", least, ", ", most, "]")};
}

}  // namespace pewter
