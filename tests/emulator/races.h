// What ThreadSanitizer is told when it watches an emulated GPU (PEWTER_SANITIZE=thread): each
// thread of a kernel is one of its fibers, and only barriers, words that are released and acquired,
// and waits for inputs order their accesses. Otherwise these functions do nothing.
#pragma once

#ifdef PEWTER_WATCH_RACES
#include <sanitizer/tsan_interface.h>

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace emulator::races {

#ifdef PEWTER_WATCH_RACES
constexpr bool kWatched = true;
using Fiber = void*;
inline Fiber current() { return __tsan_get_current_fiber(); }
inline Fiber make() { return __tsan_create_fiber(0); }
inline void go_to(Fiber fiber) { __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync); }
// What this thread has done lies before what a thread does that acquires the same thing later.
inline void release(void* thing) { __tsan_release(thing); }
inline void acquire(void* thing) { __tsan_acquire(thing); }
// Accesses that are the emulator's own.
struct Unwatched {
  Unwatched() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unwatched() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
};
#else
constexpr bool kWatched = false;
struct Fiber {};
inline Fiber current() { return {}; }
inline Fiber make() { return {}; }
inline void go_to(Fiber) {}
inline void release(void*) {}
inline void acquire(void*) {}
struct Unwatched {
  ~Unwatched() {}  // not unused
};
#endif

// As another, for a moment.
class As {
 public:
  explicit As(Fiber other) : self_(current()) { go_to(other); }
  ~As() { go_to(self_); }
  As(const As&) = delete;
  As& operator=(const As&) = delete;

 private:
  Fiber self_;
};

}  // namespace emulator::races
