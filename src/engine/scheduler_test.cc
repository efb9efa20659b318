#include "engine/scheduler.h"

#include <gmock/gmock.h>

#include <map>

#include "base/rng.h"

namespace pewter {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Scheduler, IsIdleWithNothingToDo) {
  Scheduler scheduler(64);
  EXPECT_TRUE(scheduler.plan().idle());
  scheduler.add({.id = 0, .prompt = 10, .pages = 1});
  EXPECT_TRUE(scheduler.plan().idle());  // not started yet
  EXPECT_EQ(scheduler.waiting(), 1);
}

TEST(Scheduler, StartsInOrderAndNothingOvertakes) {
  Scheduler scheduler(64);
  scheduler.add({.id = 7, .prompt = 10, .pages = 3});
  scheduler.add({.id = 8, .prompt = 10, .pages = 9});
  scheduler.add({.id = 9, .prompt = 10, .pages = 1});
  EXPECT_EQ(scheduler.start(10, 0), std::nullopt);  // no slot
  EXPECT_EQ(scheduler.start(2, 4), std::nullopt);
  EXPECT_EQ(scheduler.start(3, 4), 7);
  EXPECT_EQ(scheduler.start(8, 4), std::nullopt);  // 9 would fit, but 8 is first
  scheduler.remove(8);
  EXPECT_EQ(scheduler.start(8, 4), 9);
  EXPECT_EQ(scheduler.start(8, 4), std::nullopt);
  EXPECT_EQ(scheduler.running(), 2);
}

TEST(Scheduler, CutsPromptsAtMultiplesOfTheChunk) {
  Scheduler scheduler(64);
  scheduler.add({.id = 1, .prompt = 150, .pages = 3});
  scheduler.start(3, 1);
  for (const auto& [begin, end] : {std::pair{0, 64}, {64, 128}, {128, 150}}) {
    const StepPlan& plan = scheduler.plan();
    EXPECT_EQ(plan.prefill, 1);
    EXPECT_EQ(plan.begin, begin);
    EXPECT_EQ(plan.end, end);
    EXPECT_THAT(plan.decode, IsEmpty());
  }
  EXPECT_THAT(scheduler.plan().decode, ElementsAre(1));
}

TEST(Scheduler, ChunksAndDecodeStepsTakeTurns) {
  Scheduler scheduler(64);
  for (const int64_t id : {1, 2, 3}) scheduler.add({.id = id, .prompt = 128, .pages = 3});
  for (int i = 0; i < 3; ++i) scheduler.start(100, 8);
  std::string order;
  for (int i = 0; i < 11; ++i) {
    const StepPlan& plan = scheduler.plan();
    order += plan.prefill >= 0 ? str_cat(plan.prefill) : str_cat("d", plan.decode.size());
    order += ' ';
  }
  EXPECT_EQ(order, "1 1 d1 2 d1 2 d2 3 d2 3 d3 ");
}

// A day in the life, with random arrivals, lengths and cancellations: nobody starves, chunks cover
// every prompt once, pages are never overdrawn, and streams go on while prompts are read.
TEST(Scheduler, Simulation) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    constexpr int64_t kPages = 20, kSlots = 4;
    struct Client {
      int64_t prompt = 0, pages = 0, read = 0, left = 0;
      bool started = false;
    };
    Scheduler scheduler(64);
    std::map<int64_t, Client> clients;
    uint64_t draws = 0;
    const auto below = [&](int64_t n) {
      return static_cast<int64_t>(random_uniform(seed, draws++) * static_cast<double>(n));
    };
    int64_t next_id = 0, last_started = -1, free_pages = kPages, free_slots = kSlots;
    int64_t steps_without_decode = 0;
    const auto end = [&](int64_t id) {
      if (clients[id].started) {
        free_pages += clients[id].pages;
        ++free_slots;
      }
      clients.erase(id);
      scheduler.remove(id);
    };
    for (int64_t step = 0; step < 2000 || !clients.empty(); ++step) {
      ASSERT_LT(step, 20000) << "somebody starves, seed " << seed;
      if (step < 2000 && below(8) == 0) {
        const Client client{
            .prompt = 1 + below(300), .pages = 1 + below(kPages), .left = 1 + below(40)};
        clients[next_id] = client;
        scheduler.add({.id = next_id++, .prompt = client.prompt, .pages = client.pages});
      }
      if (!clients.empty() && below(50) == 0)
        end(std::next(clients.begin(), below(static_cast<int64_t>(clients.size())))->first);
      while (const auto id = scheduler.start(free_pages, free_slots)) {
        ASSERT_GT(*id, last_started);  // first come, first served
        last_started = *id;
        Client& client = clients.at(*id);
        client.started = true;
        free_pages -= client.pages;
        --free_slots;
        ASSERT_GE(free_pages, 0);
        ASSERT_GE(free_slots, 0);
      }
      const StepPlan plan = scheduler.plan();
      bool ready = false;
      for (const auto& [id, client] : clients)
        ready |= client.started && client.read == client.prompt;
      if (plan.prefill >= 0) {
        Client& client = clients.at(plan.prefill);
        ASSERT_EQ(plan.begin, client.read);
        ASSERT_TRUE(plan.end % 64 == 0 || plan.end == client.prompt);
        client.read = plan.end;
        ASSERT_LE(steps_without_decode += ready ? 1 : 0, 1);
      } else {
        steps_without_decode = 0;
        for (const auto& [id, client] : clients) {
          const bool decodes = std::count(plan.decode.begin(), plan.decode.end(), id) == 1;
          ASSERT_EQ(decodes, client.started && client.read == client.prompt);
        }
        for (const int64_t id : plan.decode)
          if (--clients.at(id).left == 0) end(id);
      }
    }
    EXPECT_EQ(free_pages, kPages);
    EXPECT_EQ(free_slots, kSlots);
  }
}

}  // namespace
}  // namespace pewter
