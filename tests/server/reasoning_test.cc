// Reasoning under control: budgets that close it by force, efforts that stand for budgets, and what
// becomes of the answer behind it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client.h"
#include "running_server.h"

namespace pewter::server_test {
namespace {

using testing::EndsWith;
using testing::StartsWith;

constexpr const char* kHint = "I must answer now.";

class Reasoning : public testing::Test {
 protected:
  static RunningServer& server() {
    static RunningServer running({.reasoning = {.message = kHint, .effort_budgets = {{"low", 2}}}});
    return running;
  }
  static std::string body(const std::string& more) {
    return R"({"temperature":0,"max_tokens":200,"messages":)"
           R"([{"role":"user","content":"What is the capital of France?"}])" +
           more + "}";
  }
  static Json ask(const std::string& more, const RunningServer& server = Reasoning::server()) {
    const Answer answer = post(server.port(), "/v1/chat/completions", body(more));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  static const Json& choice(const Json& response) {
    return response.find("choices")->as_array().at(0);
  }
  static std::string text(const Json& response, const char* field) {
    const Json* value = choice(response).find("message")->find(field);
    return value == nullptr || value->is_null() ? "" : value->as_string();
  }
  static bool truncated(const Json& response) {
    return choice(response).find("reasoning_truncated") != nullptr;
  }
  static int64_t tokens(const Json& response) {
    return response.find("usage")
        ->find("completion_tokens_details")
        ->find("reasoning_tokens")
        ->as_integer();
  }
};

TEST_F(Reasoning, IsClosedAtTheBudget) {
  const Json whole = ask("");
  EXPECT_FALSE(truncated(whole));
  const Json cut = ask(",\"thinking_token_budget\":3");
  EXPECT_TRUE(truncated(cut));
  EXPECT_THAT(text(cut, "reasoning"), EndsWith(str_cat("\n\n", kHint)));
  EXPECT_THAT(text(cut, "content"), StartsWith("The capital of"));
  EXPECT_EQ(choice(cut).find("finish_reason")->as_string(), "stop");
  // Three tokens of the model's own, and what was put in.
  const Json forced =
      post(server().port(), "/tokenize", str_cat(R"({"prompt":"\n\n)", kHint, R"(\n</think>"})"))
          .json();
  EXPECT_EQ(tokens(cut), 3 + forced.find("count")->as_integer());
}

TEST_F(Reasoning, IsLeftAloneWithinTheBudget) {
  const Json whole = ask("");
  for (const int64_t budget : {tokens(whole), tokens(whole) + 50, int64_t{-1}}) {
    const Json same = ask(str_cat(",\"thinking_budget\":", budget));
    EXPECT_EQ(choice(same).find("message")->dump(), choice(whole).find("message")->dump())
        << budget;
    EXPECT_FALSE(truncated(same)) << budget;
  }
  EXPECT_TRUE(truncated(ask(str_cat(",\"thinking_budget\":", tokens(whole) - 1))));
}

TEST_F(Reasoning, IsClosedAtOnceByABudgetOfZero) {
  const Json none = ask(",\"thinking_token_budget\":0");
  EXPECT_EQ(text(none, "reasoning"), kHint);
  EXPECT_EQ(text(none, "content"), "The capital of France is Paris.");
  // Without a hint it is the prompt that does not think.
  const RunningServer plain;
  const Json blank = ask(",\"thinking_token_budget\":0", plain);
  EXPECT_EQ(text(blank, "reasoning"), "");
  EXPECT_EQ(text(blank, "content"), "The capital of France is Paris.");
  EXPECT_EQ(tokens(blank), 2);
}

TEST_F(Reasoning, HasTheSameEndWhateverSaysIt) {
  const std::string wanted = text(ask(",\"thinking_token_budget\":2"), "reasoning");
  for (const char* more : {R"(,"thinking":{"type":"enabled","budget_tokens":2})",
                           R"(,"reasoning":{"max_tokens":2})", R"(,"reasoning_effort":"low")"})
    EXPECT_EQ(text(ask(more), "reasoning"), wanted) << more;
  EXPECT_FALSE(truncated(ask(R"(,"reasoning_effort":"high")")));
  EXPECT_FALSE(truncated(ask(R"(,"reasoning_effort":"low","thinking_token_budget":-1)")));
  const RunningServer limited({.reasoning = {.budget = 2, .message = kHint}});
  EXPECT_EQ(text(ask("", limited), "reasoning"), wanted);
  EXPECT_FALSE(truncated(ask(",\"thinking_token_budget\":100", limited)));
}

TEST_F(Reasoning, StreamsTheSame) {
  const Answer answer = post(server().port(), "/v1/chat/completions",
                             body(",\"thinking_token_budget\":3,\"stream\":true"));
  std::string reasoning, content;
  bool told = false;
  for (const std::string& event : answer.events()) {
    if (event == "[DONE]") continue;
    const Json chunk = Json::parse(event).value();
    const Json& one = choice(chunk);
    if (const Json* piece = one.find("delta")->find("reasoning")) reasoning += piece->as_string();
    if (const Json* piece = one.find("delta")->find("content")) content += piece->as_string();
    told = told || one.find("reasoning_truncated") != nullptr;
  }
  EXPECT_TRUE(told);
  EXPECT_THAT(reasoning, EndsWith(str_cat("\n\n", kHint)));
  EXPECT_EQ(content, text(ask(",\"thinking_token_budget\":3"), "content"));
}

TEST_F(Reasoning, ClosesAsWellWithDrafts) {
  RunningServer::Options options{.reasoning = {.message = kHint}};
  options.draft = {.method = DraftMethod::kMtp, .tokens = 3};
  const RunningServer drafting(options);
  for (const int budget : {0, 1, 2, 3, 5, 8}) {
    const std::string more = str_cat(R"(,"thinking_token_budget":)", budget);
    EXPECT_EQ(choice(ask(more, drafting)).dump(), choice(ask(more)).dump()) << budget;
  }
}

TEST_F(Reasoning, MeansNothingWithoutABlock) {
  const Json plain =
      ask(R"(,"thinking_token_budget":1,"chat_template_kwargs":{"enable_thinking":false})");
  EXPECT_EQ(text(plain, "content"), "The capital of France is Paris.");
  EXPECT_FALSE(truncated(plain));
}

TEST_F(Reasoning, EndsByItsLengthFirst) {
  const Json cut = ask(",\"thinking_token_budget\":100,\"max_tokens\":4");
  EXPECT_EQ(choice(cut).find("finish_reason")->as_string(), "length");
  EXPECT_TRUE(choice(cut).find("message")->find("content")->is_null());
  EXPECT_EQ(tokens(cut), 4);
  EXPECT_FALSE(truncated(cut));
}

}  // namespace
}  // namespace pewter::server_test
