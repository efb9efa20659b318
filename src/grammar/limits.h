// What a grammar may cost. A client writes it, so every bound is an error with a message and none a
// hang; the numbers leave room for schemas many times the largest seen in use.
#pragma once

#include <cstdint>

namespace pewter::grammar {

inline constexpr uint32_t kMostStates = 1 << 16;        // of a compiled grammar
inline constexpr uint32_t kMostTableEntries = 1 << 22;  // states × byte classes, 16 MiB
inline constexpr uint32_t kMostNfaStates = 1 << 18;     // of one rule before it is made
                                                        // deterministic
inline constexpr int64_t kMostWork = 1 << 23;           // steps of making a grammar deterministic
inline constexpr uint32_t kMostRules = 1 << 14;
inline constexpr uint32_t kDeepest = 250;       // rules inside rules while matching
inline constexpr size_t kMostThreads = 256;     // readings of one text at the same time
inline constexpr int kDeepestExpression = 400;  // parts inside parts

}  // namespace pewter::grammar
