#include "emulator/machine.h"

#include <sys/mman.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace emulator {
namespace {

// Of the environment. least, most: what makes sense.
uint64_t number_from(const char* variable, uint64_t otherwise, uint64_t least, uint64_t most) {
  const char* const given = std::getenv(variable);
  if (given == nullptr) return otherwise;
  uint64_t number = 0;
  const char* const end = given + std::strlen(given);
  const auto [rest, error] = std::from_chars(given, end, number);
  if (error == std::errc() && rest == end && number >= least && number <= most) return number;
  std::fprintf(stderr, "%s: \"%s\" is no number from %llu to %llu\n", variable, given,
               static_cast<unsigned long long>(least), static_cast<unsigned long long>(most));
  std::exit(2);
}

int64_t shared_need(const Launch& launch) {
  return static_cast<int64_t>(launch.shared_bytes) + kOwnSharedBytes;
}
int threads_of(const Launch& launch) {
  return static_cast<int>(launch.threads.x * launch.threads.y * launch.threads.z);
}

}  // namespace

Lane* lane = nullptr;

Machine& machine() {
  static Machine* const made = new Machine;  // outlives whatever ends after main
  return *made;
}

void fail(const char* what) {
  if (lane != nullptr)
    std::fprintf(stderr, "emulated GPU: %s: block (%u, %u, %u), thread %u\n", what, place().index.x,
                 place().index.y, place().index.z, lane->thread.x);
  else
    std::fprintf(stderr, "emulated GPU: %s\n", what);
  std::abort();
}

boost::context::stack_context StackPool::allocate() {
  if (free.empty()) {
    constexpr size_t kAtOnce = 256, kLine = 64;
    auto* const memory = static_cast<std::byte*>(mmap(
        nullptr, kBytes * kAtOnce, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (memory == MAP_FAILED) fail("no memory for the stacks of threads");
    madvise(memory, kBytes * kAtOnce, MADV_HUGEPAGE);
    for (size_t i = 0; i < kAtOnce; ++i) {
      std::byte* const end = memory + (i + 1) * kBytes - i % 32 * 5 * kLine;
      number[end] = stacks.size();
      free.push_back(stacks.size());
      stacks.push_back({end, races::make()});
    }
  }
  given = free.back();
  free.pop_back();
  boost::context::stack_context stack;
  stack.size = kBytes / 2;
  stack.sp = stacks[given].end;
  return stack;
}
void StackPool::deallocate(boost::context::stack_context& stack) {
  const races::Unwatched own;
  free.push_back(number.at(stack.sp));
}

namespace {
struct PooledStacks {  // as fibers take it: by value
  StackPool* pool;
  boost::context::stack_context allocate() { return pool->allocate(); }
  void deallocate(boost::context::stack_context& stack) { pool->deallocate(stack); }
};
}  // namespace

std::byte* SharedPool::allocate() {
  if (!races::kWatched && !unused.empty()) {
    std::byte* const memory = unused.back();
    unused.pop_back();
    return memory;
  }
  void* const memory =
      mmap(nullptr, kSharedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("no memory for what blocks share");
  return static_cast<std::byte*>(memory);
}
void SharedPool::free(std::byte* memory) {
  if (races::kWatched)
    munmap(memory, kSharedBytes);  // who has it next races with nobody
  else
    unused.push_back(memory);
}

int multiprocessors() {
  static const auto count = static_cast<int>(
      number_from("PEWTER_EMULATED_MULTIPROCESSORS", races::kWatched ? 2 : 24, 1, 256));
  return count;
}

Machine::Machine()
    : generator_{number_from("PEWTER_EMULATOR_SEED", 1, 0, UINT64_MAX)},
      multiprocessors_(static_cast<size_t>(multiprocessors())) {}

void Machine::run(Stream& stream) {
  const races::Unwatched own;
  int idle = 0;
  watched_scheduler_ = races::current();
  if (engines_.empty()) courier_ = races::make();
  while (!stream.queue.empty() || !kernels_.empty()) {
    begin_work(stream);
    if (resident_.empty()) continue;
    Block& block = *resident_[random(resident_.size())];
    const uint64_t before = activity_;
    const auto patience = static_cast<int>(4 * resident_.size());
    visit(block, idle > patience);
    if (activity_ != before)
      idle = 0;
    else if (++idle > 100 * patience + 1000)
      report_deadlock();
    while (!kernels_.empty() && kernels_.front()->finished == kernels_.front()->count()) {
      {
        const races::As courier(courier_);
        races::acquire(&kernels_.front()->end);
        races::release(&completed_);
      }
      kernels_.pop_front();
      happened();
      if (kernels_.empty()) continue;
      for (const auto& waiting : kernels_.front()->blocks)  // for the end of the kernel before
        for (Warp& warp : waiting->warps) warp.ready |= std::exchange(warp.for_inputs, 0);
    }
  }
  inputs_are_here();
}

// Begins what may: a kernel that is early when every block of the one before lets it.
void Machine::begin_work(Stream& stream) {
  if (!kernels_.empty()) {
    Kernel& last = *kernels_.back();
    if (last.started < last.count()) return start_blocks(last);
    if (last.letting < last.count() || stream.queue.empty()) return;
    const Work& next = stream.queue.front();
    if (next.host != nullptr || !next.launch.is_early || random(2) != 0) return;
  }
  Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (work.host != nullptr || !work.launch.is_early) inputs_are_here();
  if (work.host == nullptr) return begin_kernel(std::move(work.launch));
  work.host();
}

void Machine::begin_kernel(Launch launch) {
  if (launch.blocks.x * launch.blocks.y * launch.blocks.z == 0 || threads_of(launch) == 0 ||
      threads_of(launch) > 1024 || launch.shared_bytes > kStaticBegin)
    fail("a kernel is launched with no blocks, or more threads or shared memory than there are");
  kernels_.push_back(std::make_unique<Kernel>());
  kernels_.back()->launch = std::move(launch);
  happened();
  start_blocks(*kernels_.back());
}

void Machine::start_blocks(Kernel& kernel) {
  while (kernel.started < kernel.count()) {
    const auto freest = std::min_element(
        multiprocessors_.begin(), multiprocessors_.end(), [](const auto& a, const auto& b) {
          return a.shared_bytes + 16 * a.threads < b.shared_bytes + 16 * b.threads;
        });
    if (freest->threads + threads_of(kernel.launch) > kThreadsOfMultiprocessor ||
        freest->shared_bytes + shared_need(kernel.launch) > kGpu.shared_bytes)
      return;
    const dim3 blocks = kernel.launch.blocks;
    const unsigned i = kernel.started++;
    start_block(kernel, {i % blocks.x, i / blocks.x % blocks.y, i / blocks.x / blocks.y},
                static_cast<int>(freest - multiprocessors_.begin()));
  }
}

void Machine::start_block(Kernel& kernel, uint3 index, int multiprocessor) {
  kernel.blocks.push_back(std::make_unique<Block>());
  Block& block = *kernel.blocks.back();
  block.index = index;
  block.threads = kernel.launch.threads;
  block.blocks = kernel.launch.blocks;
  block.kernel = &kernel;
  block.multiprocessor = multiprocessor;
  block.threads_left = threads_of(kernel.launch);
  block.shared = shared_pool_.allocate();
  std::memset(block.shared, kPoison, kernel.launch.shared_bytes);
  block.static_used = kStaticBegin;
  block.copies_late = random(4) == 0;
  if (engines_.empty()) engines_.push_back(races::make());
  block.engine = engines_.back();
  engines_.pop_back();
  races::release(&kernel.begin);
  const int threads = block.threads_left;
  block.thread_copies.resize(static_cast<size_t>(threads));
  block.warps = std::vector<Warp>(static_cast<size_t>((threads + kWarp - 1) / kWarp));
  for (int i = 0; i < threads; ++i) {
    Warp& warp = block.warps[static_cast<size_t>(i / kWarp)];
    Lane& of = warp.lanes[i % kWarp];
    const auto number = static_cast<unsigned>(i);
    of = {.thread = {number % block.threads.x, number / block.threads.x % block.threads.y,
                     number / block.threads.x / block.threads.y},
          .block = &block,
          .warp = &warp,
          .index = i % kWarp};
    warp.all |= 1u << (i % kWarp);
    warp.fibers[i % kWarp] = boost::context::fiber(
        std::allocator_arg, PooledStacks{&stacks_}, [this, &kernel](boost::context::fiber&& from) {
          *left_ = std::move(from);
          Lane& self = *lane;
          races::acquire(&kernel.begin);
          kernel.launch.body();
          races::release(&kernel.end);
          settle(self, Outcome::kDone);
          left_ = &self.warp->fibers[self.index];
          boost::context::fiber& next = next_of(*self.warp);
          watch_who_runs();
          return std::move(next);
        });
    warp.watched[i % kWarp] = stacks_.stacks[stacks_.given].watched;
  }
  for (Warp& warp : block.warps) warp.ready = warp.all;
  auto& taken = multiprocessors_[static_cast<size_t>(multiprocessor)];
  taken.threads += threads;
  taken.shared_bytes += shared_need(kernel.launch);
  resident_.push_back(&block);
  happened();
}

void Machine::finish_block(Block& block) {
  if (!block.bulk_copies.empty() || !block.copying.empty())
    fail("a block ended before its copies into shared memory");
  Kernel& kernel = *block.kernel;
  if (!block.lets_next_start) ++kernel.letting;
  ++kernel.finished;
  auto& taken = multiprocessors_[static_cast<size_t>(block.multiprocessor)];
  taken.threads -= threads_of(kernel.launch);
  taken.shared_bytes -= shared_need(kernel.launch);
  shared_pool_.free(block.shared);
  engines_.push_back(block.engine);
  std::erase(resident_, &block);
  std::erase_if(kernel.blocks, [&](const auto& one) { return one.get() == &block; });
  happened();
}

void Machine::watch_who_runs() const {
  races::go_to(lane == nullptr ? watched_scheduler_ : lane->warp->watched[lane->index]);
}

void Machine::switch_from(boost::context::fiber& own, boost::context::fiber& to) {
  left_ = &own;
  watch_who_runs();
  boost::context::fiber from = std::move(to).resume();
  *left_ = std::move(from);
}

// Of a warp, a lane that is ready, while it has turns; then the scheduler.
boost::context::fiber& Machine::next_of(Warp& warp) {
  lane = nullptr;
  if (warp.ready == 0 || turns_left_ == 0) return scheduler_;
  --turns_left_;
  const auto turn = static_cast<int>(random(kWarp));
  const int i = (std::countr_zero(std::rotr(warp.ready, turn)) + turn) % kWarp;
  warp.ready &= ~(1u << i);
  lane = &warp.lanes[i];
  return warp.fibers[i];
}

void Machine::leave(Outcome outcome) {
  Lane& self = *lane;
  settle(self, outcome);
  boost::context::fiber& next = next_of(*self.warp);
  if (lane != &self) switch_from(self.warp->fibers[self.index], next);
  lane = &self;
}

void Machine::pause() {
  if (random(4) != 0) return;
  if (random(2) == 0) turns_left_ = 0;  // for other warps
  leave(Outcome::kReady);
}

void Machine::wake(Lane& of) { of.warp->ready |= 1u << of.index; }

// What became of a lane that stops running.
void Machine::settle(Lane& of, Outcome outcome) {
  const uint32_t bit = 1u << of.index;
  switch (outcome) {
    case Outcome::kReady:
      of.warp->ready |= bit;
      return;
    case Outcome::kLooking:
      of.warp->looking |= bit;
      return;
    case Outcome::kForBlock:
      of.warp->for_block |= bit;
      break;
    case Outcome::kForInputs:
      of.warp->for_inputs |= bit;
      break;
    case Outcome::kWaiting:
      break;
    case Outcome::kDone:
      of.warp->done |= bit;
      --of.block->threads_left;
      check_together(*of.warp);
      check_barrier(*of.block, of.block->barriers[0]);
      break;
  }
  happened();
}

void Machine::happened_in(Block& block) {
  for (Warp& warp : block.warps) warp.ready |= std::exchange(warp.for_block, 0);
  happened();
}

// Some of a block's warps run for a while; where none can, copies end.
void Machine::visit(Block& block, bool is_forced) {
  if (is_forced || block.seen != activity_)
    for (Warp& warp : block.warps) warp.ready |= std::exchange(warp.looking, 0);
  block.seen = activity_;
  bool ran = false;
  const auto waits = [](const Warp& warp) { return warp.for_block != 0; };
  const bool copies = !block.copies_late || std::ranges::any_of(block.warps, waits);
  for (auto turns = 1 + random(2 * block.warps.size()); turns > 0; --turns) {
    const size_t first = random(block.warps.size());
    size_t chosen = 0;
    while (chosen < block.warps.size() &&
           block.warps[(first + chosen) % block.warps.size()].ready == 0)
      ++chosen;
    if (chosen == block.warps.size()) break;
    Warp& warp = block.warps[(first + chosen) % block.warps.size()];
    ran = true;
    turns_left_ = random(4) == 0 ? 1 + random(16) : 64 + random(256);
    switch_from(scheduler_, next_of(warp));
    if (block.threads_left == 0) {
      finish_block(block);
      return;
    }
    if (copies && random(2) == 0) finish_copy(block);
  }
  if (ran || !copies) return;
  while (finish_copy(block) && random(4) != 0) {
  }
}

// One that is under way, or some of a thread's, if there are any.
bool Machine::finish_copy(Block& block) {
  const size_t kinds = block.bulk_copies.size() + block.copying.size();
  if (kinds == 0) return false;
  size_t which = random(kinds);
  const auto finish = [&](const Copy& copy) {
    if (!copy.is_arrival) {
      std::memcpy(block.shared + copy.to, copy.from, static_cast<size_t>(copy.wanted));
      std::memset(block.shared + copy.to + copy.wanted, 0,
                  static_cast<size_t>(copy.bytes - copy.wanted));
    }
    if (copy.is_arrival)
      ptx::mbarrier_arrive_shared_b64(copy.barrier);
    else if (copy.barrier != kNoBarrier)
      bytes_arrive(copy.barrier, copy.bytes);
  };
  Lane engine{.thread = {}, .block = &block, .warp = nullptr, .index = 0};
  Lane* const self = std::exchange(lane, &engine);
  const races::As watched(block.engine);
  races::acquire(&block);
  if (which < block.bulk_copies.size()) {
    const Copy copy = block.bulk_copies[which];
    block.bulk_copies[which] = block.bulk_copies.back();
    block.bulk_copies.pop_back();
    finish(copy);
  } else {
    which -= block.bulk_copies.size();
    auto& own = block.thread_copies[static_cast<size_t>(block.copying[which])];
    for (auto count = 1 + random(16); count > 0 && !own.empty(); --count) finish(own.pop());
    if (own.empty()) {
      block.copying[which] = block.copying.back();
      block.copying.pop_back();
      happened_in(block);
    }
    races::release(&block.copying);
  }
  lane = self;
  happened();
  return true;
}

void Machine::check_together(Warp& warp) {
  if (warp.arrived == 0) return;
  const int any = std::countr_zero(warp.arrived);
  const Together& first = warp.together[any];
  const uint32_t needed = first.mask & warp.all & ~warp.done;
  if (warp.arrived != needed) return;
  void *in[kWarp] = {}, *out[kWarp] = {};
  for (int i = 0; i < kWarp; ++i) {
    if ((warp.arrived >> i & 1) == 0) continue;
    if (warp.together[i].run != first.run || warp.together[i].mask != first.mask)
      fail("lanes of a warp do different things together");
    in[i] = warp.together[i].in;
    out[i] = warp.together[i].out;
  }
  {
    const races::Unwatched own;
    first.run(in, out);
  }
  warp.ready |= std::exchange(warp.arrived, 0);
}

void Machine::check_barrier(Block& block, NamedBarrier& barrier) {
  const bool is_of_block = &barrier == &block.barriers[0];
  const int needed = is_of_block ? block.threads_left : barrier.needed;
  if (barrier.arrived == 0 || barrier.arrived < needed) return;
  barrier.arrived = 0;
  barrier.result = std::exchange(barrier.condition, false);
  for (Lane* const waiting : barrier.waiting) wake(*waiting);
  barrier.waiting.clear();
}

void Machine::report_deadlock() const {
  for (const auto& kernel : kernels_) {
    std::fprintf(stderr, "kernel %p of %u blocks: %u started, %u let the next start, %u finished\n",
                 kernel->launch.function, kernel->count(), kernel->started, kernel->letting,
                 kernel->finished);
    for (const auto& block : kernel->blocks) {
      std::fprintf(stderr, "  block (%u, %u, %u):", block->index.x, block->index.y, block->index.z);
      for (const Warp& warp : block->warps)
        std::fprintf(stderr, " [look %08x, block %08x, inputs %08x, together %08x, done %08x]",
                     warp.looking, warp.for_block, warp.for_inputs, warp.arrived, warp.done);
      std::fprintf(stderr, "\n");
    }
  }
  fail("all wait for one another");
}

}  // namespace emulator
