// What a thread asks of its block and its warp.
#include "emulator/device.h"

#include "emulator/machine.h"

namespace emulator {
namespace {

// A barrier in shared memory, as this machine writes it into the eight bytes.
struct CountedBarrier {
  int32_t bytes;  // that are still to come
  uint32_t pending : 16, arrivals : 15, phase : 1;
};
static_assert(sizeof(CountedBarrier) == 8);

CountedBarrier& counted(uint32_t barrier) {
  if (barrier % 8 != 0) fail("a barrier is not aligned");
  return *static_cast<CountedBarrier*>(shared_at(barrier, 8));
}
CountedBarrier& existing(uint32_t barrier) {
  CountedBarrier& counts = counted(barrier);
  if (std::bit_cast<uint64_t>(counts) == 0xCBCBCBCBCBCBCBCB) fail("a barrier that was never made");
  return counts;
}
void check_phase(CountedBarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  barrier.phase ^= 1;
  barrier.pending = barrier.arrivals;
  machine().happened_in(*lane->block);
}
void wait_at(NamedBarrier& barrier) {
  const races::Unwatched own;
  barrier.waiting.push_back(lane);
}
size_t number_in_block(const Lane& of) {
  const Block& block = *of.block;
  return of.thread.x + block.threads.x * (of.thread.y + block.threads.y * of.thread.z);
}

}  // namespace

const BlockPlace& place() { return *lane->block; }

uint32_t shared_address(const void* at) {
  const auto offset = static_cast<const std::byte*>(at) - lane->block->shared;
  if (offset < 0 || offset >= static_cast<ptrdiff_t>(kSharedBytes)) fail("no shared memory");
  return static_cast<uint32_t>(offset);
}
void* shared_at(uint32_t address, size_t bytes) {
  const Block& block = *lane->block;
  const bool is_dynamic = address + bytes <= block.kernel->launch.shared_bytes;
  const bool is_static = address >= kStaticBegin && address + bytes <= block.static_used;
  if (!is_dynamic && !is_static) fail("an address outside of shared memory");
  return block.shared + address;
}
void* dynamic_shared() { return lane->block->shared; }
void* static_shared(const char* key, size_t bytes, size_t align) {
  const races::Unwatched own;
  Block& block = *lane->block;
  for (const auto& [known, at] : block.statics)
    if (known == key) return at;
  block.static_used = (block.static_used + align - 1) / align * align;
  std::byte* const at = block.shared + block.static_used;
  block.static_used += bytes;
  if (block.static_used > kSharedBytes) fail("more static shared memory than there is");
  std::memset(at, kPoison, bytes);
  block.statics.emplace_back(key, at);
  return at;
}

void sync_block() {
  Block& block = *lane->block;
  NamedBarrier& barrier = block.barriers[0];
  races::release(&barrier);
  ++barrier.arrived;
  wait_at(barrier);
  machine().check_barrier(block, barrier);
  machine().leave(Outcome::kWaiting);
  races::acquire(&barrier);
}
bool sync_block_or(bool condition) {
  NamedBarrier& barrier = lane->block->barriers[0];
  barrier.condition = barrier.condition || condition;
  sync_block();
  return barrier.result;
}
void arrive_named(int number, int threads) {
  if (number <= 0 || number >= 16 || threads % kWarp != 0) fail("no such barrier");
  Block& block = *lane->block;
  NamedBarrier& barrier = block.barriers[number];
  if (barrier.arrived != 0 && barrier.needed != threads)
    fail("threads come to one barrier for different counts");
  races::release(&barrier);
  barrier.needed = threads;
  ++barrier.arrived;
  machine().happened();
  machine().check_barrier(block, barrier);
}
void sync_named(int number, int threads) {
  NamedBarrier& barrier = lane->block->barriers[number];
  wait_at(barrier);
  arrive_named(number, threads);
  machine().leave(Outcome::kWaiting);
  races::acquire(&barrier);
}

void wait_for_others() { machine().leave(Outcome::kLooking); }
void wrote_for_others() { machine().happened(); }
void let_others_run() { machine().pause(); }

void start_next() {
  Block& block = *lane->block;
  if (std::exchange(block.lets_next_start, true)) return;
  ++block.kernel->letting;
  machine().happened();
  machine().pause();
}
void wait_for_inputs() {
  while (!machine().is_first(*lane->block->kernel)) machine().leave(Outcome::kForInputs);
  machine().inputs_are_here();
  machine().pause();
}

void copy_later(uint32_t to, const void* from, int bytes, int wanted, uint32_t barrier) {
  Block& block = *lane->block;
  // Who reads before the copy has come reads this.
  std::memset(shared_at(to, static_cast<size_t>(bytes)), kPoison, static_cast<size_t>(bytes));
  races::release(&block);
  const races::Unwatched own;
  const Copy copy{to, static_cast<const std::byte*>(from), bytes, wanted, barrier};
  if (barrier != kNoBarrier) return block.bulk_copies.push_back(copy);
  const size_t thread = number_in_block(*lane);
  if (block.thread_copies[thread].empty()) block.copying.push_back(static_cast<int>(thread));
  block.thread_copies[thread].push(copy);
}
void arrive_with_copies(uint32_t barrier) {
  Block& block = *lane->block;
  races::release(&block);
  const races::Unwatched own;
  const size_t thread = number_in_block(*lane);
  if (block.thread_copies[thread].empty()) block.copying.push_back(static_cast<int>(thread));
  block.thread_copies[thread].push({0, nullptr, 0, 0, barrier, true});
}
void wait_for_copies() {
  while (!lane->block->thread_copies[number_in_block(*lane)].empty())
    machine().leave(Outcome::kForBlock);
  races::acquire(&lane->block->copying);
}
void bytes_arrive(uint32_t barrier, int bytes) {
  CountedBarrier& counts = existing(barrier);
  races::release(&counts);
  counts.bytes -= bytes;
  check_phase(counts);
}

void sync_warp(uint32_t mask) {
  Warp& warp = *lane->warp;
  races::release(&warp);
  together<int>(mask, 0, [](const int* const(&)[kWarp], int* const(&)[kWarp]) {});
  races::acquire(&warp);
}

void do_together(const Together& own) {
  Warp& warp = *lane->warp;
  const uint32_t bit = 1u << lane->index;
  if ((own.mask & bit) == 0) fail("a lane does with others what it is no part of");
  warp.together[lane->index] = own;
  warp.arrived |= bit;
  machine().check_together(warp);
  machine().leave(Outcome::kWaiting);
}

namespace ptx {

void mbarrier_init_shared_b64(uint32_t barrier, int arrivals) {
  const auto count = static_cast<uint32_t>(arrivals);
  counted(barrier) = {
      .bytes = 0, .pending = count & 0x7FFF, .arrivals = count & 0x7FFF, .phase = 0};
}
void mbarrier_arrive_shared_b64(uint32_t barrier) {
  CountedBarrier& counts = existing(barrier);
  if (counts.pending == 0) fail("more arrivals at a barrier than it waits for");
  races::release(&counts);
  --counts.pending;
  machine().happened();
  check_phase(counts);
}
void mbarrier_arrive_expect_tx_shared_cta_b64(uint32_t barrier, int bytes) {
  existing(barrier).bytes += bytes;
  mbarrier_arrive_shared_b64(barrier);
}
void mbarrier_test_wait_parity_shared_b64(uint32_t& done, uint32_t barrier, uint32_t parity) {
  CountedBarrier& counts = existing(barrier);
  const auto look = [&] { done = counts.phase != (parity & 1) ? 1 : 0; };
  look();
  if (done == 0) {
    machine().leave(Outcome::kForBlock);
    look();
  }
  if (done != 0) races::acquire(&counts);
}

}  // namespace ptx
}  // namespace emulator
