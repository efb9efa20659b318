// What a thread of an emulated kernel sees: its place, shared memory, barriers, and what the lanes
// of a warp do together.
//
// Every thread is a fiber, and all run on one thread of the CPU, in an order drawn from a seed: a
// fiber runs until it waits for others, or until it looks at a word of memory that others may
// write. Asynchronous copies happen at any time between their request and the moment that someone
// must wait for them. What is not emulated: caches, fences that are missing (memory is always
// consistent), and steps between the points named, which run without interruption.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

namespace emulator {

constexpr int kWarp = 32;

struct Block;
struct Warp;
struct Lane {
  uint3 thread;
  Block* block;
  Warp* warp;
  int index;  // in the warp
};
struct BlockPlace {
  uint3 index;
  dim3 threads, blocks;
};
const BlockPlace& place();  // of the block that runs
extern Lane* lane;          // that runs

// Ends the program: what a kernel did, where, and that it may not.
[[noreturn]] void fail(const char* what);

// A block's shared memory; addresses in it are offsets of 32 bits.
uint32_t shared_address(const void* at);
void* shared_at(uint32_t address, size_t bytes);
void* dynamic_shared();
void* static_shared(const char* key, size_t bytes, size_t align);

void sync_block();
bool sync_block_or(bool condition);
void sync_named(int barrier, int threads);
void arrive_named(int barrier, int threads);

// Lets others run, since the thread has seen that what it waits for is not there.
void wait_for_others();
// The same now and then, where others may write what the thread has looked at or will.
void let_others_run();
void wrote_for_others();  // who looks may find it

void start_next();
void wait_for_inputs();

constexpr int kPoison = 0xCB;  // in memory that nobody has written
constexpr uint32_t kNoBarrier = ~0u;
// Copies, each of which ends some time later. barrier: where its bytes are counted.
void copy_later(uint32_t to, const void* from, int bytes, int wanted_bytes, uint32_t barrier);
void arrive_with_copies(uint32_t barrier);
void wait_for_copies();

// What the lanes of a warp do together: each gives an In and gets an Out when all of the mask have
// come. compute(in, out): pointers of the 32 lanes, null for those that are not there.
struct Together {
  void (*run)(void* const (&in)[kWarp], void* const (&out)[kWarp]);
  uint32_t mask;
  void *in, *out;
};
void do_together(const Together& together);
template <typename Out, typename In, typename Compute>
Out together(uint32_t mask, In in, Compute) {
  static_assert(std::is_empty_v<Compute>);
  Out out{};
  do_together({.run =
                   [](void* const(&all_in)[kWarp], void* const(&all_out)[kWarp]) {
                     const In* ins[kWarp];
                     Out* outs[kWarp];
                     for (int i = 0; i < kWarp; ++i) {
                       ins[i] = static_cast<const In*>(all_in[i]);
                       outs[i] = static_cast<Out*>(all_out[i]);
                     }
                     Compute{}(ins, outs);
                   },
               .mask = mask,
               .in = &in,
               .out = &out});
  return out;
}

void sync_warp(uint32_t mask);

}  // namespace emulator
