// Many clients at once: good ones, ones that vanish, ones that do not read. ThreadSanitizer runs
// all of this.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "client.h"
#include "running_server.h"

namespace pewter::server_test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

std::string chat(const std::string& question, const std::string& more) {
  std::string body =
      "{\"model\":\"m\",\"temperature\":0,\"messages\":[{\"role\":\"user\",\"content\":";
  append_json_string(body, question);
  return body + "}]" + more + "}";
}

// All text of a streamed chat, reasoning first.
std::string text_of(const Answer& answer) {
  std::string reasoning, content;
  for (const std::string& event : answer.events()) {
    if (event == "[DONE]") continue;
    const Json json = Json::parse(event).value();
    for (const Json& choice : json.find("choices")->as_array()) {
      const Json& delta = *choice.find("delta");
      if (const Json* text = delta.find("reasoning")) reasoning += text->as_string();
      if (const Json* text = delta.find("content")) content += text->as_string();
    }
  }
  return reasoning + "|" + content;
}

std::string question(int i) {
  static const std::vector<std::string> kQuestions = {
      "What is the capital of France?", "Tell me a story about a fox named Clara.",
      "What is 12 plus 30?", "Name three colours.", "What is the capital of Japan?"};
  return kQuestions[static_cast<size_t>(i) % kQuestions.size()];
}

TEST(Load, SixtyFourStreamsSayWhatTheySayAlone) {
  constexpr int kStreams = 64;
  const std::string more = str_cat(",\"stream\":true,\"max_tokens\":", kSlowness == 1 ? 24 : 6);
  RunningServer server;
  std::vector<std::string> alone;
  for (int i = 0; i < 5; ++i)
    alone.push_back(text_of(post(server.port(), "/v1/chat/completions", chat(question(i), more))));
  std::vector<std::string> together(kStreams);
  std::vector<std::thread> threads;
  for (int i = 0; i < kStreams; ++i)
    threads.emplace_back([&, i] {
      together[static_cast<size_t>(i)] =
          text_of(post(server.port(), "/v1/chat/completions", chat(question(i), more)));
    });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kStreams; ++i)
    EXPECT_EQ(together[static_cast<size_t>(i)], alone[static_cast<size_t>(i % 5)]) << i;
  EXPECT_TRUE(server.is_idle_within(2s));
}

// Waits until the engine says so. Its numbers are those of its last step: a first token may reach a
// client before they tell that its request runs.
void wait_for_status(const RunningServer& server, int64_t running, int64_t waiting) {
  while (true) {
    const EngineStatus status = server.loaded->engine->status();
    if (status.running == running && status.waiting == waiting) return;
    std::this_thread::sleep_for(1ms);
  }
}

// Streams, whole answers, completions, errors, and clients that leave, all at once.
TEST(Load, AMixtureLeavesNothingBehind) {
  RunningServer server({.max_sequences = 4});
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 12; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 4; ++i) {
        Client client(server.port());
        const int kind = (t + i) % 4;
        if (kind == 0) {
          client.post("/v1/chat/completions",
                      chat(question(t), ",\"max_tokens\":8,\"stream\":true,\"n\":2"));
          good += client.receive().complete ? 1 : 0;
        } else if (kind == 1) {
          client.post("/v1/completions", R"({"prompt":["1, 2,","a"],"max_tokens":6})");
          good += client.receive().status == 200 ? 1 : 0;
        } else if (kind == 2) {
          client.post("/v1/chat/completions", "{\"messages\":5}");
          good += client.receive().status == 400 ? 1 : 0;
        } else {
          client.post(
              "/v1/chat/completions",
              chat(question(t), ",\"max_tokens\":4000,\"ignore_eos\":true,\"stream\":true"));
          good += client.receive_until("data: ") ? 1 : 0;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 48);
  EXPECT_TRUE(server.is_idle_within(5s));
  EXPECT_EQ(server.loaded->engine->status().cache_tokens_used, 0);
}

TEST(Vanishing, FreesWhatARequestHeld) {
  RunningServer server({.max_sequences = 1, .chunk_rows = 64});
  const std::string endless = ",\"max_tokens\":4000,\"ignore_eos\":true";
  std::string book;
  for (int i = 0; i < 1500; ++i) book += "one two three ";
  struct Case {
    const char* name;
    std::string body;
    bool stream;
  };
  for (const Case& c : {Case{"streaming", chat("Hi", endless + ",\"stream\":true"), true},
                        Case{"whole", chat("Hi", endless), false},
                        Case{"in prefill", chat(book, ",\"max_tokens\":5,\"stream\":true"), false},
                        Case{"in prefill, whole", chat(book, ",\"max_tokens\":5"), false}}) {
    Client client(server.port());
    client.post("/v1/chat/completions", c.body);
    if (c.stream) {
      ASSERT_TRUE(client.receive_until("\"delta\""));
    }
    while (server.loaded->engine->status().running == 0) std::this_thread::sleep_for(1ms);
    client.close();
    EXPECT_TRUE(server.is_idle_within(1500ms)) << c.name;
  }
  EXPECT_EQ(server.loaded->engine->status().cache_tokens_used, 0);
}

TEST(Vanishing, FromTheQueueIsNeverStarted) {
  RunningServer server({.max_sequences = 1});
  Client running(server.port());
  running.post("/v1/chat/completions",
               chat("Hi", ",\"max_tokens\":4000,\"ignore_eos\":true,\"stream\":true"));
  ASSERT_TRUE(running.receive_until("\"delta\""));
  wait_for_status(server, 1, 0);
  {
    Client waiting(server.port());
    waiting.post("/v1/chat/completions", chat("Hi", ",\"max_tokens\":4000,\"stream\":true"));
    ASSERT_TRUE(waiting.receive_until("\r\n\r\n"));  // accepted: its stream is open
    wait_for_status(server, 1, 1);
  }
  for (int i = 0; i < 1000 && server.loaded->engine->status().waiting > 0; ++i)
    std::this_thread::sleep_for(1ms);
  EXPECT_EQ(server.loaded->engine->status().waiting, 0);
  EXPECT_EQ(server.loaded->engine->status().running, 1);  // the other one goes on
  EXPECT_TRUE(running.is_open_after(50ms));
}

TEST(Queue, FullIsAnAnswer) {
  RunningServer server({.max_sequences = 1, .max_waiting = 1});
  const std::string endless =
      chat("Hi", ",\"max_tokens\":4000,\"ignore_eos\":true,\"stream\":true");
  Client running(server.port());
  running.post("/v1/chat/completions", endless);
  ASSERT_TRUE(running.receive_until("\"delta\""));
  wait_for_status(server, 1, 0);
  Client waiting(server.port());
  waiting.post("/v1/chat/completions", endless);
  wait_for_status(server, 1, 1);
  const Answer refused = post(server.port(), "/v1/chat/completions", endless);
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.head, HasSubstr("Retry-After: "));
  EXPECT_THAT(refused.body, HasSubstr("queue is full"));
  running.close();
  EXPECT_TRUE(waiting.receive_until("\"delta\""));  // its turn
}

TEST(SlowReader, IsDroppedWhileOthersGoOn) {
  RunningServer server(
      {.max_sequences = 4, .unsent_bytes = 32 << 10, .send_buffer_bytes = 8 << 10});
  Client stalled(server.port(), 4 << 10);
  stalled.post("/v1/chat/completions",
               chat("Hi", ",\"max_tokens\":8000,\"ignore_eos\":true,\"stream\":true"));
  ASSERT_TRUE(stalled.receive_until("\"delta\""));
  // It reads no more. Others are served as ever.
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(
        post(server.port(), "/v1/chat/completions", chat(question(i), ",\"max_tokens\":8")).status,
        200);
  EXPECT_TRUE(server.is_idle_within(20s));  // dropped long before its 8000 tokens
  EXPECT_LT(server.loaded->engine->status().completion_tokens, 4000);
  const Answer rest = stalled.receive();
  EXPECT_FALSE(rest.complete);
}

TEST(Models, TwoInOneProcess) {
  RunningServer one({.name = "one"}), two({.max_context = 512, .name = "two"});
  const auto ask = [](const RunningServer& server, const std::string& name) {
    std::string body = chat("What is the capital of France?", ",\"max_tokens\":40");
    body.replace(body.find("\"m\""), 3, "\"" + name + "\"");
    return post(server.port(), "/v1/chat/completions", body);
  };
  std::vector<std::thread> threads;
  std::vector<Answer> answers(8);
  for (size_t i = 0; i < answers.size(); ++i)
    threads.emplace_back([&, i] { answers[i] = i % 2 == 0 ? ask(one, "one") : ask(two, "two"); });
  for (std::thread& thread : threads) thread.join();
  for (const Answer& answer : answers) EXPECT_THAT(answer.body, HasSubstr("Paris"));
  EXPECT_EQ(ask(one, "two").status, 404);
  EXPECT_THAT(get(two.port(), "/v1/models").body, HasSubstr("\"max_model_len\":512"));
}

TEST(Shutdown, LetsRunningRequestsEndAndRefusesNewOnes) {
  RunningServer server;
  Client running(server.port()), idle(server.port());
  running.post("/v1/chat/completions", chat("Tell me a story about a fox named Clara.",
                                            ",\"max_tokens\":60,\"stream\":true"));
  ASSERT_TRUE(running.receive_until("\"delta\""));
  idle.get("/health");
  EXPECT_EQ(idle.receive().status, 200);
  server.api.drain();
  server.loaded->engine->drain();
  idle.post("/v1/chat/completions", chat("Hi", ""));
  EXPECT_EQ(idle.receive().status, 503);
  server.http->drain();
  const Answer answer = running.receive();
  EXPECT_TRUE(answer.complete);
  EXPECT_EQ(answer.events().back(), "[DONE]");
  EXPECT_TRUE(server.http->wait_idle(kSlowness * 2s));
  EXPECT_FALSE(idle.is_open_after(kSlowness * 2s));
}

TEST(Shutdown, TellsThoseItCutsOff) {
  RunningServer server({.max_sequences = 1});
  Client streamed(server.port()), whole(server.port());
  streamed.post("/v1/chat/completions",
                chat("Hi", ",\"max_tokens\":8000,\"ignore_eos\":true,\"stream\":true"));
  ASSERT_TRUE(streamed.receive_until("\"delta\""));
  whole.post("/v1/chat/completions", chat("Hi", ",\"max_tokens\":8000,\"ignore_eos\":true"));
  server.api.drain();
  server.loaded->engine->cancel_all();
  const Answer stream = streamed.receive();
  EXPECT_TRUE(stream.complete);
  ASSERT_GT(stream.events().size(), 2u);
  EXPECT_EQ(stream.events().back(), "[DONE]");
  EXPECT_THAT(stream.events()[stream.events().size() - 2], HasSubstr("shutting down"));
  EXPECT_EQ(whole.receive().status, 503);
  EXPECT_TRUE(server.is_idle_within(2s));
}

TEST(Shutdown, CutsOffWhatDoesNotEnd) {
  auto server = std::make_unique<RunningServer>();
  Client running(server->port());
  running.post("/v1/chat/completions",
               chat("Hi", ",\"max_tokens\":8000,\"ignore_eos\":true,\"stream\":true"));
  ASSERT_TRUE(running.receive_until("\"delta\""));
  const auto begin = std::chrono::steady_clock::now();
  server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kSlowness * 3s);
  EXPECT_FALSE(running.receive().complete);
}

}  // namespace
}  // namespace pewter::server_test
