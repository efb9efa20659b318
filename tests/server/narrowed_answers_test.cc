// What a request takes out of the choice of tokens, out of its prompt, and what it is told of both:
// bad_words, allowed_token_ids, repetition_detection, truncate_prompt_tokens, prompt_logprobs,
// echo, templates of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client.h"
#include "running_server.h"

namespace pewter::server_test {
namespace {

using testing::HasSubstr;
using testing::Not;

class NarrowedAnswers : public testing::Test {
 protected:
  static RunningServer& server() {
    static RunningServer running(
        {.max_context = 512, .own_templates = true, .exclude_unwanted_tools = true});
    return running;
  }
  static RunningServer& drafting() {
    static RunningServer running({.draft = {.method = DraftMethod::kMtp, .tokens = 3}});
    return running;
  }
  static std::string chat(const std::string& more) {
    return R"({"temperature":0,"chat_template_kwargs":{"enable_thinking":false},)"
           R"("messages":[{"role":"user","content":"What is the capital of France?"}])" +
           more + "}";
  }
  static Json ask(const std::string& more, const std::string& path = "/v1/chat/completions") {
    const Answer answer =
        post(server().port(), path, path == "/v1/completions" ? more : chat(more));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  static std::string refused(const std::string& more,
                             const std::string& path = "/v1/chat/completions") {
    const Answer answer =
        post(server().port(), path, path == "/v1/completions" ? more : chat(more));
    EXPECT_EQ(answer.status, 400) << answer.body;
    return answer.body;
  }
  static const Json& choice(const Json& response) {
    return response.find("choices")->as_array().at(0);
  }
  static std::string content(const Json& response) {
    return choice(response).find("message")->find("content")->as_string();
  }
  static int64_t prompt_tokens(const Json& response) {
    return response.find("usage")->find("prompt_tokens")->as_integer();
  }
};

TEST_F(NarrowedAnswers, DoNotSayBadWords) {
  EXPECT_THAT(content(ask("")), HasSubstr("Paris"));
  for (const char* words : {R"(["Paris"])", R"(["France is"])", R"("Paris")"}) {
    const std::string without = content(ask(str_cat(",\"bad_words\":", words)));
    EXPECT_THAT(without, Not(HasSubstr(words[2] == 'F' ? "France is" : "Paris"))) << words;
  }
  // Drafts that would say it are not taken, and the answer is the same.
  const std::string more = R"(,"bad_words":["Paris","ready"],"max_tokens":40)";
  const Json drafted = post(drafting().port(), "/v1/chat/completions", chat(more)).json();
  EXPECT_EQ(content(drafted), content(ask(more)));
  EXPECT_THAT(refused(R"(,"bad_words":[""])"), HasSubstr("\"param\":\"bad_words\""));
  EXPECT_THAT(refused(R"(,"bad_words":5)"), HasSubstr("\"param\":\"bad_words\""));
}

TEST_F(NarrowedAnswers, HaveOnlyAllowedTokens) {
  const Json tokens = post(server().port(), "/tokenize", R"({"prompt":" Paris Rome"})").json();
  const std::string ids = tokens.find("tokens")->dump();
  const std::string said = content(ask(",\"max_tokens\":1,\"allowed_token_ids\":" + ids));
  EXPECT_TRUE(said == " Paris" || said == " Rome") << said;
  EXPECT_EQ(choice(ask(",\"max_tokens\":7,\"allowed_token_ids\":" + ids))
                .find("finish_reason")
                ->as_string(),
            "length");
  EXPECT_THAT(refused(",\"allowed_token_ids\":[]"), HasSubstr("allowed_token_ids"));
  EXPECT_THAT(refused(",\"allowed_token_ids\":[99999999]"), HasSubstr("allowed_token_ids"));
  // Nothing of an object can be said with this.
  EXPECT_THAT(refused(R"(,"response_format":{"type":"json_object"},"allowed_token_ids":[5])"),
              HasSubstr("leaves no token"));
}

TEST_F(NarrowedAnswers, EndWhenTheyRepeatThemselves) {
  const std::string limit =
      R"(,"repetition_detection":{"max_pattern_size":4,"min_count":3},"allowed_token_ids":[411,412],)"
      R"("max_tokens":200)";
  const Json response = ask(limit);
  EXPECT_EQ(choice(response).find("finish_reason")->as_string(), "repetition");
  EXPECT_EQ(choice(response).find("stop_reason")->as_string(), "repetition_detected");
  EXPECT_LT(response.find("usage")->find("completion_tokens")->as_integer(), 100);
  EXPECT_EQ(choice(ask(R"(,"repetition_detection":{"max_pattern_size":4,"min_count":3})"))
                .find("finish_reason")
                ->as_string(),
            "stop");
  EXPECT_THAT(refused(R"(,"repetition_detection":{"max_pattern_size":4,"min_count":1})"),
              HasSubstr("repetition_detection.min_count"));
}

TEST_F(NarrowedAnswers, ToPromptsThatAreCut) {
  const Json cut = ask(R"(,"truncate_prompt_tokens":6,"return_prompt_text":true,"max_tokens":3)");
  EXPECT_EQ(prompt_tokens(cut), 6);
  const std::string& text = cut.find("prompt_text")->as_string();
  EXPECT_TRUE(text.ends_with("<think>\n\n</think>\n\n") && text.size() < 30) << text;
  const Json whole = ask(R"(,"truncate_prompt_tokens":6000,"max_tokens":3)");
  EXPECT_EQ(prompt_tokens(whole), prompt_tokens(ask(",\"max_tokens\":3")));
  // As many as leave room for the answer.
  const int64_t context = server().loaded->engine->max_context();
  std::string prompt;
  for (int64_t i = 0; i < context; ++i) prompt += " a";
  const Json fitted =
      ask(str_cat(R"({"truncate_prompt_tokens":-1,"max_tokens":9,"prompt":")", prompt, "\"}"),
          "/v1/completions");
  EXPECT_EQ(prompt_tokens(fitted), context - 9);
  EXPECT_THAT(refused(",\"truncate_prompt_tokens\":0"), HasSubstr("truncate_prompt_tokens"));
}

TEST_F(NarrowedAnswers, TellHowLikelyThePromptWas) {
  const Json response = ask(R"(,"prompt_logprobs":2,"return_token_ids":true,"max_tokens":1,"n":2)");
  const Json::Array& ids = response.find("prompt_token_ids")->as_array();
  const Json::Array& told = response.find("prompt_logprobs")->as_array();
  ASSERT_EQ(told.size(), ids.size());
  EXPECT_TRUE(told[0].is_null());
  for (size_t i = 1; i < told.size(); ++i) {
    const Json* said = told[i].find(str_cat(ids[i].as_integer()));
    ASSERT_NE(said, nullptr) << i;
    EXPECT_LE(said->find("logprob")->as_double(), 0);
    EXPECT_GE(told[i].as_object().size(), 2u);
    EXPECT_LE(told[i].as_object().size(), 3u);
  }
  EXPECT_THAT(refused(R"(,"prompt_logprobs":1,"stream":true)"), HasSubstr("prompt_logprobs"));
  EXPECT_THAT(refused(R"(,"prompt_logprobs":21)"), HasSubstr("prompt_logprobs"));
}

TEST_F(NarrowedAnswers, EchoPromptsWithTheirLogprobs) {
  const std::string request =
      R"({"prompt":"The capital of France is Paris","echo":true,"logprobs":2,"max_tokens":1,)"
      R"("temperature":0)";
  const Json response = ask(request + "}", "/v1/completions");
  EXPECT_EQ(choice(response).find("text")->as_string(), "The capital of France is Paris.");
  const Json& logprobs = *choice(response).find("logprobs");
  const Json::Array& values = logprobs.find("token_logprobs")->as_array();
  ASSERT_EQ(values.size(), 7u);
  EXPECT_TRUE(values[0].is_null());
  EXPECT_GT(values[5].as_double(), -0.1);  // Paris
  EXPECT_EQ(logprobs.find("tokens")->as_array()[5].as_string(), " Paris");
  EXPECT_EQ(logprobs.find("text_offset")->as_array()[5].as_integer(), 24);
  // A stream says the same, the prompt in its first event.
  const Answer stream = post(server().port(), "/v1/completions", request + ",\"stream\":true}");
  std::vector<double> streamed;
  for (const std::string& event : stream.events()) {
    if (event == "[DONE]") continue;
    const Json parsed = Json::parse(event).value();
    const Json* part = choice(parsed).find("logprobs");
    if (part->is_null()) continue;
    for (const Json& value : part->find("token_logprobs")->as_array())
      streamed.push_back(value.is_null() ? 0 : value.as_double());
  }
  ASSERT_EQ(streamed.size(), 7u);
  for (size_t i = 1; i < 7; ++i) EXPECT_EQ(streamed[i], values[i].as_double()) << i;
}

TEST_F(NarrowedAnswers, EchoTheMessageTheyGoOnWith) {
  const std::string request =
      R"({"messages":[{"role":"user","content":"What is the capital of France?"},)"
      R"({"role":"assistant","content":"The capital"}],"echo":true,"temperature":0,)"
      R"("continue_final_message":true,"add_generation_prompt":false)";
  const Json whole = post(server().port(), "/v1/chat/completions", request + "}").json();
  EXPECT_EQ(content(whole), "The capital of France is Paris.");
  const Answer stream =
      post(server().port(), "/v1/chat/completions", request + ",\"stream\":true}");
  std::string text;
  for (const std::string& event : stream.events()) {
    if (event == "[DONE]") continue;
    const Json parsed = Json::parse(event).value();
    const Json* part = choice(parsed).find("delta")->find("content");
    if (part != nullptr) text += part->as_string();
  }
  EXPECT_EQ(text, "The capital of France is Paris.");
}

TEST_F(NarrowedAnswers, ByTheirOwnTemplates) {
  const std::string own =
      R"(,"return_prompt_text":true,"max_tokens":1,"chat_template":"{{ messages[0].content }} It is")";
  EXPECT_EQ(ask(own).find("prompt_text")->as_string(), "What is the capital of France? It is");
  EXPECT_THAT(refused(R"(,"chat_template":"{% if %}")"), HasSubstr("\"param\":\"chat_template\""));
  // Control tokens of its own count, those in messages do not.
  EXPECT_EQ(prompt_tokens(ask(R"(,"max_tokens":1,"chat_template":"<|im_end|>")")), 1);
  // Not without the flag.
  const Answer refusal = post(drafting().port(), "/v1/chat/completions", chat(own));
  EXPECT_EQ(refusal.status, 400);
  EXPECT_THAT(refusal.body, HasSubstr("--trust-request-chat-template"));
  // A program that does not end is stopped.
  EXPECT_THAT(refused(R"(,"chat_template":"{% for a in range(99999) %}{% for b in range(99999) %}x)"
                      R"({% endfor %}{% endfor %}")"),
              HasSubstr("chat template, line 1"));
}

TEST_F(NarrowedAnswers, WithoutToolsThatAreNotWanted) {
  const std::string tools =
      R"(,"max_tokens":1,"tools":[{"type":"function","function":{"name":"f","parameters":{}}}])";
  const int64_t plain = prompt_tokens(ask(",\"max_tokens\":1"));
  EXPECT_GT(prompt_tokens(ask(tools)), plain);
  EXPECT_EQ(prompt_tokens(ask(tools + R"(,"tool_choice":"none")")), plain);
  // Without the flag they stay in the prompt.
  const Json kept =
      post(drafting().port(), "/v1/chat/completions", chat(tools + R"(,"tool_choice":"none")"))
          .json();
  EXPECT_GT(prompt_tokens(kept), plain);
}

}  // namespace
}  // namespace pewter::server_test
