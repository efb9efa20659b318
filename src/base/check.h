// Lane two of our error lanes: we failed. CHECK is always on and aborts with the condition, the
// values the caller gives and the place. DCHECK is for hot inner loops, on in debug and sanitizer
// builds only.
#pragma once

#include "base/str_cat.h"

namespace pewter {

[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& message);

}  // namespace pewter

#define CHECK(condition, ...)                                                                 \
  do {                                                                                        \
    if (!(condition)) [[unlikely]]                                                            \
      ::pewter::check_failed(#condition, __FILE__, __LINE__, ::pewter::str_cat(__VA_ARGS__)); \
  } while (false)

#ifdef NDEBUG
#define DCHECK(condition, ...) \
  do {                         \
  } while (false)
#else
#define DCHECK(condition, ...) CHECK(condition, __VA_ARGS__)
#endif
