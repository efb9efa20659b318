// The emulated GPU: streams of work, kernels whose blocks are resident, and who runs next.
#pragma once

#include <cuda_runtime.h>

#include <boost/context/fiber.hpp>
#include <chrono>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "emulator/device.h"
#include "emulator/races.h"

namespace emulator {

// What a GPU of the architecture has, but for the number of its multiprocessors.
struct Gpu {
  const char* name;
  int major, minor, cache_bytes;
  int64_t shared_bytes;  // of a multiprocessor
  bool is_unified;
};
constexpr int kThreadsOfMultiprocessor = 2048;
constexpr int64_t kOwnSharedBytes = 1024;  // that a block takes besides what it asks for
// A block's memory: what is asked for at the launch, then its shared variables.
constexpr size_t kSharedBytes = 256 << 10, kStaticBegin = 128 << 10;
constexpr Gpu kGpu = PEWTER_EMULATED_ARCHITECTURE >= 1200
                         ? Gpu{"emulated Spark", 12, 1, 24 << 20, 100 << 10, true}
                     : PEWTER_EMULATED_ARCHITECTURE >= 900
                         ? Gpu{"emulated Hopper", 9, 0, 50 << 20, 228 << 10, false}
                         : Gpu{"emulated Ampere", 8, 0, 40 << 20, 164 << 10, false};

// PEWTER_EMULATED_MULTIPROCESSORS, or few, so that small tests fill them; ThreadSanitizer has room
// for 8,000 fibers. A block that is one kernel wants 24 for eight heads, 96 for 64.
int multiprocessors();

// Stacks are used again by later fibers. They begin at different offsets within their pages, or all
// lanes would share a few sets of the CPU's cache.
struct StackPool {
  static constexpr size_t kBytes = 32 << 10;
  boost::context::stack_context allocate();
  void deallocate(boost::context::stack_context& stack);
  struct Stack {
    std::byte* end;
    races::Fiber watched;  // a stack has one for ever
  };
  std::vector<Stack> stacks;
  std::vector<size_t> free;
  std::map<const void*, size_t> number;  // by the end
  size_t given = 0;                      // the last one
};

struct SharedPool {
  std::byte* allocate();
  void free(std::byte* memory);
  std::vector<std::byte*> unused;
};

// Numbers that need not be good, but fast.
struct Generator {
  uint64_t state;
  uint64_t below(uint64_t limit) {  // of at most 2³²
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 32) * limit >> 32;
  }
};

// At a barrier that counts what copies bring, in the block of the lane that runs.
void bytes_arrive(uint32_t barrier, int bytes);

// Why a lane stops running: not at all, for others of its warp or block, …; see Warp.
enum class Outcome { kReady, kWaiting, kLooking, kForBlock, kForInputs, kDone };

struct Warp {
  Lane lanes[kWarp];
  boost::context::fiber fibers[kWarp];
  races::Fiber watched[kWarp];
  uint32_t all = 0;  // lanes that there are
  // Each lane is in one of these, or waits for others. looking: at memory that anyone may write;
  // for_block: at barriers and copies of its block; for_inputs: until the kernel before has ended.
  uint32_t ready = 0, looking = 0, for_block = 0, for_inputs = 0, done = 0;
  // What lanes do together.
  uint32_t arrived = 0;
  Together together[kWarp];
};

struct Copy {
  uint32_t to;
  const std::byte* from;
  int bytes, wanted;  // those not wanted become zero
  uint32_t barrier;   // of a bulk copy; of an arrival; or kNoBarrier
  bool is_arrival = false;
};

struct CopyQueue {  // in the order of their requests
  std::vector<Copy> copies;
  size_t first = 0;
  bool empty() const { return first == copies.size(); }
  void push(const Copy& copy) { copies.push_back(copy); }
  Copy pop() {
    const Copy copy = copies[first++];
    if (empty()) copies.clear(), first = 0;
    return copy;
  }
};

struct NamedBarrier {
  int arrived = 0, needed = 0;
  bool condition = false, result = false;
  std::vector<Lane*> waiting;
};

struct Kernel;
struct Block : BlockPlace {
  Kernel* kernel;
  int multiprocessor;
  std::vector<Warp> warps;
  int threads_left;
  bool lets_next_start = false;
  std::byte* shared;
  size_t static_used;
  std::vector<std::pair<const char*, std::byte*>> statics;
  NamedBarrier barriers[16];
  std::vector<Copy> bulk_copies;         // in no order
  std::vector<CopyQueue> thread_copies;  // of each thread
  std::vector<int> copying;              // threads with copies
  bool copies_late;                      // not before somebody waits
  races::Fiber engine;                   // that copies
  uint64_t seen = 0;                     // how much had happened when it was last run
};

struct Kernel {
  Launch launch;
  unsigned started = 0, finished = 0, letting = 0;  // blocks
  std::list<std::unique_ptr<Block>> blocks;
  char begin = 0, end = 0;  // for ThreadSanitizer
  unsigned count() const { return launch.blocks.x * launch.blocks.y * launch.blocks.z; }
};

struct Work {
  Launch launch;               // of a kernel, or
  std::function<void()> host;  // what is done in one piece
};
struct Graph {
  std::vector<Work> work;
};
struct Stream {
  std::deque<Work> queue;
  Graph* capture = nullptr;
};
struct Event {
  Stream* stream = nullptr;
  std::chrono::steady_clock::time_point time;
};

class Machine {
 public:
  Machine();
  // Until the stream has no work left.
  void run(Stream& stream);

  // Of the lane that runs: others go on. Returns when it is run again.
  void leave(Outcome outcome);
  void pause();  // leaves now and then, to go on at once
  void wake(Lane& of);
  void happened() { ++activity_; }
  void happened_in(Block& block);  // what lanes wait for with kForBlock
  uint64_t random(uint64_t limit) { return generator_.below(limit); }
  bool is_first(const Kernel& kernel) const { return kernels_.front().get() == &kernel; }
  void inputs_are_here() { races::acquire(&completed_); }
  void check_together(Warp& warp);
  void check_barrier(Block& block, NamedBarrier& barrier);

 private:
  void begin_work(Stream& stream);
  void begin_kernel(Launch launch);
  void start_blocks(Kernel& kernel);
  void start_block(Kernel& kernel, uint3 index, int multiprocessor);
  void finish_block(Block& block);
  void visit(Block& block, bool is_forced);
  void settle(Lane& of, Outcome outcome);
  boost::context::fiber& next_of(Warp& warp);
  void watch_who_runs() const;
  void switch_from(boost::context::fiber& own, boost::context::fiber& to);
  bool finish_copy(Block& block);
  [[noreturn]] void report_deadlock() const;

  Generator generator_;
  std::deque<std::unique_ptr<Kernel>> kernels_;  // that have begun and not ended, in order
  std::vector<Block*> resident_;
  struct Multiprocessor {
    int64_t threads = 0, shared_bytes = 0;
  };
  std::vector<Multiprocessor> multiprocessors_;
  StackPool stacks_;
  SharedPool shared_pool_;
  boost::context::fiber scheduler_;
  races::Fiber watched_scheduler_, courier_;
  std::vector<races::Fiber> engines_;
  boost::context::fiber* left_ = nullptr;  // where who runs now finds the one that ran before
  uint64_t turns_left_ = 0;                // of the warp that runs
  uint64_t activity_ = 1;
  char completed_ = 0;  // kernels, for ThreadSanitizer
};
Machine& machine();

}  // namespace emulator
