// Many requests on one engine: whatever joins, leaves, waits or is cancelled beside a request, it
// says what it says alone, and everything it held comes back.

#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "support/crowd.h"

namespace pewter {
namespace {

using test::becomes_idle;
using test::Output;
using test::read_all;
using Rig = test::CrowdRig;
using testing::HasSubstr;

class Batching : public test::RigTest {
 protected:
  std::vector<Request> crowd(int count, uint64_t seed) const {
    return test::crowd(GetParam(), count, seed);
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, Batching, testing::ValuesIn(test::small_rig_cases()),
                         test::kRigName);

TEST_P(Batching, NeighboursChangeNothing) {
  const std::vector<Request> requests = crowd(12, 1);
  std::vector<Output> alone;
  {
    Rig rig(GetParam(), {.runner = {.chunk_rows = 64, .cache_tokens = 512}});
    for (const Request& request : requests) {
      TokenStream stream = rig.engine->submit(request).value();
      alone.push_back(read_all(stream));
    }
  }
  // Four at a time, so that some wait; and a pool that does not hold four of the longest.
  Rig rig(GetParam(), {.runner = {.chunk_rows = 64, .max_sequences = 4, .cache_tokens = 512}});
  std::vector<TokenStream> streams;
  for (const Request& request : requests) streams.push_back(rig.engine->submit(request).value());
  for (size_t i = 0; i < requests.size(); ++i) {
    const Output together = read_all(streams[i]);
    EXPECT_EQ(together.tokens, alone[i].tokens) << i;
    EXPECT_EQ(together.logprobs, alone[i].logprobs) << i;
    EXPECT_EQ(together.completion.reason, alone[i].completion.reason);
    EXPECT_EQ(together.completion.completion_tokens, alone[i].completion.completion_tokens);
  }
  EXPECT_TRUE(becomes_idle(*rig.engine));
  EXPECT_TRUE(rig.returned_everything());
}

TEST_P(Batching, CancelledOnesVanishAndDisturbNobody) {
  const std::vector<Request> requests = crowd(10, 2);
  Rig rig(GetParam(), {.runner = {.chunk_rows = 64, .max_sequences = 3, .cache_tokens = 512}});
  std::vector<Output> undisturbed;
  for (size_t i = 0; i < requests.size(); i += 2) {
    TokenStream stream = rig.engine->submit(requests[i]).value();
    undisturbed.push_back(read_all(stream));
  }
  std::vector<TokenStream> kept;
  for (size_t i = 0; i < requests.size(); ++i) {
    Request request = requests[i];
    if (i % 2 == 1) request.max_tokens = 100000;  // would take its whole context
    TokenStream stream = rig.engine->submit(std::move(request)).value();
    if (i % 2 == 0)
      kept.push_back(std::move(stream));
    else if (i % 4 == 1)
      stream.cancel();  // … and all odd streams are destroyed here
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  for (size_t i = 0; i < kept.size(); ++i)
    EXPECT_EQ(read_all(kept[i]).tokens, undisturbed[i].tokens);
  EXPECT_TRUE(becomes_idle(*rig.engine));
  EXPECT_TRUE(rig.returned_everything());
}

TEST_P(Batching, AFullQueueRefuses) {
  Rig rig(GetParam(), {.runner = {.chunk_rows = 64, .cache_tokens = 512}, .max_waiting = 2});
  const Request request{.prompt = {1, 2, 3}, .sampling = {.seed = 1}, .max_tokens = 500};
  std::vector<TokenStream> streams;
  std::optional<Error> refused;
  for (int i = 0; i < 20 && !refused; ++i) {
    Result<TokenStream> stream = rig.engine->submit(request);
    if (stream)
      streams.push_back(std::move(*stream));
    else
      refused = stream.error();
  }
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused->message, HasSubstr("2 requests wait"));
  EXPECT_LE(streams.size(), 4u);
  streams.clear();
  EXPECT_TRUE(becomes_idle(*rig.engine));
  EXPECT_TRUE(rig.engine->submit(request));
}

TEST_P(Batching, DrainLetsTheRunningFinish) {
  Rig rig(GetParam(), {.runner = {.chunk_rows = 64, .cache_tokens = 512}});
  const Request request{.prompt = {1, 2, 3}, .sampling = {.seed = 1}, .max_tokens = 20};
  TokenStream running = rig.engine->submit(request).value();
  TokenStream waiting = rig.engine->submit(request).value();
  rig.engine->drain();
  const Result<TokenStream> late = rig.engine->submit(request);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(read_all(running).tokens.size(), 20u);
  EXPECT_EQ(read_all(waiting).tokens.size(), 20u);
}

TEST_P(Batching, TheEndOfAnEngineEndsItsStreams) {
  std::vector<TokenStream> streams;
  {
    Rig rig(GetParam(), {.runner = {.chunk_rows = 64, .max_sequences = 2, .cache_tokens = 512}});
    for (int i = 0; i < 5; ++i)
      streams.push_back(rig.engine
                            ->submit({.prompt = {1, 2, 3},
                                      .sampling = {.seed = 1},
                                      .max_tokens = 100000,
                                      .ignore_stop = true})
                            .value());
  }
  for (TokenStream& stream : streams)
    EXPECT_EQ(read_all(stream).completion.reason, FinishReason::kCancelled);
}

// Readers that are told, and look only then.
TEST_P(Batching, NewsAreAnnounced) {
  Rig rig(GetParam(), {.runner = {.chunk_rows = 64, .max_sequences = 4, .cache_tokens = 512}});
  struct Bell {
    std::mutex mutex;
    std::condition_variable rung;
    int rings = 0;
  } bell;
  TokenStream stream = rig.engine
                           ->submit({.prompt = test::random_tokens(GetParam().config, 130, 3),
                                     .sampling = {.seed = 1},
                                     .max_tokens = 20},
                                    [&bell] {
                                      const std::lock_guard lock(bell.mutex);
                                      ++bell.rings;
                                      bell.rung.notify_one();
                                    })
                           .value();
  StreamNews news;
  size_t tokens = 0;
  int64_t prompt_done = 0;
  while (!news.end) {
    {
      std::unique_lock lock(bell.mutex);
      ASSERT_TRUE(
          bell.rung.wait_for(lock, std::chrono::seconds(60), [&] { return bell.rings > 0; }));
      EXPECT_EQ(bell.rings, 1);
      bell.rings = 0;
    }
    stream.poll(news);
    EXPECT_FALSE(news.empty());
    EXPECT_GE(news.prompt_done, prompt_done);
    prompt_done = news.prompt_done;
    tokens += news.tokens.size();
  }
  EXPECT_EQ(tokens, 20u);
  EXPECT_EQ(prompt_done, 130);
}

// Many threads submit, cancel and read at once.
TEST_P(Batching, SurvivesACrowdOfClients) {
  const std::vector<Request> requests = crowd(24, 4);
  Rig rig(GetParam(), {.runner = {.chunk_rows = 64, .max_sequences = 4, .cache_tokens = 1024},
                       .max_context = 256});
  std::vector<std::vector<int32_t>> first(requests.size()), second(requests.size());
  for (auto* round : {&first, &second}) {
    std::vector<std::thread> clients;
    for (size_t c = 0; c < 6; ++c)
      clients.emplace_back([&, c] {
        for (size_t i = c; i < requests.size(); i += 6) {
          TokenStream stream = rig.engine->submit(requests[i]).value();
          const Result<TokenStream> dropped = rig.engine->submit(requests[(i + 1) % 24]);
          (*round)[i] = read_all(stream).tokens;
        }
      });
    for (std::thread& client : clients) client.join();
  }
  EXPECT_EQ(first, second);
  EXPECT_TRUE(becomes_idle(*rig.engine));
  EXPECT_TRUE(rig.returned_everything());
}

}  // namespace
}  // namespace pewter
