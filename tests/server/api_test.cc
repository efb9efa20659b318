// What each endpoint says, whole and streamed, and every way it says no.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client.h"
#include "running_server.h"

namespace pewter::server_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class Api : public testing::Test {
 protected:
  static RunningServer& server() {
    static RunningServer running;
    return running;
  }
  static Answer ask(const std::string& path, const std::string& json) {
    return post(server().port(), path, json);
  }
  // A greedy question without thinking, unless `more` says otherwise.
  static std::string chat(const std::string& more,
                          const std::string& question = "What is the capital of France?") {
    return R"({"model":"m","temperature":0,"chat_template_kwargs":{"enable_thinking":false},)"
           R"("messages":[{"role":"user","content":")" +
           question + "\"}]" + more + "}";
  }
  static Json ask_chat(const std::string& more) {
    const Answer answer = ask("/v1/chat/completions", chat(more));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  static std::vector<Json> stream(const std::string& path, const std::string& json) {
    const Answer answer = ask(path, json);
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_TRUE(answer.complete);
    std::vector<Json> events;
    for (const std::string& event : answer.events())
      if (event != "[DONE]") events.push_back(Json::parse(event).value());
    EXPECT_EQ(answer.events().back(), "[DONE]");
    return events;
  }
  static const Json& choice(const Json& response, size_t i = 0) {
    return response.find("choices")->as_array().at(i);
  }
  static std::string content(const Json& response, size_t i = 0) {
    return choice(response, i).find("message")->find("content")->as_string();
  }
  static int64_t usage(const Json& response, const char* name) {
    return response.find("usage")->find(name)->as_integer();
  }
};

TEST_F(Api, AnswersAChat) {
  const Json response = ask_chat("");
  EXPECT_EQ(response.find("object")->as_string(), "chat.completion");
  EXPECT_EQ(response.find("model")->as_string(), "m");
  EXPECT_EQ(content(response), "The capital of France is Paris.");
  EXPECT_EQ(choice(response).find("finish_reason")->as_string(), "stop");
  EXPECT_TRUE(choice(response).find("stop_reason")->is_null());
  EXPECT_EQ(usage(response, "total_tokens"),
            usage(response, "prompt_tokens") + usage(response, "completion_tokens"));
  EXPECT_EQ(response.find("timings")->find("predicted_n")->as_integer(),
            usage(response, "completion_tokens"));
}

TEST_F(Api, TellsHowDraftsDid) {
  RunningServer::Options options;
  options.draft = {.method = DraftMethod::kMtp, .tokens = 3};
  const RunningServer drafting(options);
  const std::string question = chat("", "Count from 20 to 40.");
  const Json plain = ask("/v1/chat/completions", question).json();
  const Json drafted = post(drafting.port(), "/v1/chat/completions", question).json();
  EXPECT_EQ(content(drafted), content(plain));
  const Json& details = *drafted.find("usage")->find("completion_tokens_details");
  const Json& timings = *drafted.find("timings");
  const int64_t accepted = timings.find("draft_n_accepted")->as_integer();
  EXPECT_GT(accepted, 10);
  EXPECT_EQ(details.find("accepted_prediction_tokens")->as_integer(), accepted);
  EXPECT_EQ(details.find("rejected_prediction_tokens")->as_integer() + accepted,
            timings.find("draft_n")->as_integer());
  EXPECT_EQ(plain.find("timings")->find("draft_n"), nullptr);
  EXPECT_EQ(
      plain.find("usage")->find("completion_tokens_details")->find("accepted_prediction_tokens"),
      nullptr);
}

TEST_F(Api, PartsReasoning) {
  const std::string thinking = R"(,"chat_template_kwargs":{"enable_thinking":true})";
  const Json response = ask_chat(thinking);
  const Json& message = *choice(response).find("message");
  EXPECT_EQ(message.find("content")->as_string(), "The capital of France is Paris.");
  EXPECT_EQ(*message.find("reasoning"), *message.find("reasoning_content"));
  EXPECT_THAT(message.find("reasoning")->as_string(), HasSubstr("Paris"));
  EXPECT_GT(response.find("usage")
                ->find("completion_tokens_details")
                ->find("reasoning_tokens")
                ->as_integer(),
            5);
  // The same text without the reasoning, which is counted all the same.
  const Json without = ask_chat(thinking + ",\"include_reasoning\":false");
  EXPECT_EQ(choice(without).find("message")->find("reasoning"), nullptr);
  EXPECT_EQ(content(without), "The capital of France is Paris.");
  EXPECT_EQ(usage(without, "completion_tokens"), usage(response, "completion_tokens"));
  // Cut off within it: no content at all.
  const Json cut = ask_chat(thinking + ",\"max_tokens\":3");
  EXPECT_TRUE(choice(cut).find("message")->find("content")->is_null());
  EXPECT_EQ(choice(cut).find("finish_reason")->as_string(), "length");
}

TEST_F(Api, StreamsOneEventAToken) {
  for (const char* thinking : {"true", "false"}) {
    const std::string more = str_cat(R"(,"chat_template_kwargs":{"enable_thinking":)", thinking,
                                     R"(},"max_tokens":20,"ignore_eos":true,"stream":true)",
                                     R"(,"stream_options":{"include_usage":true})");
    const std::vector<Json> events = stream("/v1/chat/completions", chat(more));
    // The role, twenty tokens, perhaps text that was held back, the end, the usage.
    ASSERT_GE(events.size(), 23u);
    ASSERT_LE(events.size(), 24u);
    EXPECT_EQ(choice(events[0]).find("delta")->dump(), R"({"role":"assistant","content":""})");
    for (size_t i = 0; i + 1 < events.size(); ++i) EXPECT_EQ(events[i].find("usage"), nullptr);
    EXPECT_EQ(events.back().find("choices")->dump(), "[]");
    EXPECT_EQ(usage(events.back(), "completion_tokens"), 20);
    EXPECT_EQ(choice(events[events.size() - 2]).find("finish_reason")->as_string(), "length");
    EXPECT_EQ(choice(events[events.size() - 2]).find("delta")->dump(), "{}");
  }
}

TEST_F(Api, StreamsWhatItWouldSayAtOnce) {
  for (const std::string more :
       {"", ",\"stop\":[\" of\"]", ",\"stop\":\"Paris\",\"include_stop_str_in_output\":true",
        ",\"max_tokens\":4", ",\"logprobs\":true,\"top_logprobs\":3", ",\"return_token_ids\":true",
        R"(,"chat_template_kwargs":{"enable_thinking":true},"stop":"Par")"}) {
    const Json whole = ask_chat(more);
    std::string text;
    int64_t logprobs = 0;
    std::vector<int64_t> ids;
    Json reason, stop_reason;
    for (const Json& event : stream("/v1/chat/completions", chat(more + ",\"stream\":true"))) {
      const Json& c = choice(event);
      if (const Json* piece = c.find("delta")->find("content")) text += piece->as_string();
      if (!c.find("logprobs")->is_null())
        logprobs += static_cast<int64_t>(c.find("logprobs")->find("content")->as_array().size());
      if (const Json* some = c.find("token_ids"))
        for (const Json& id : some->as_array()) ids.push_back(id.as_integer());
      reason = *c.find("finish_reason");
      if (const Json* why = c.find("stop_reason")) stop_reason = *why;
    }
    EXPECT_EQ(text, content(whole)) << more;
    EXPECT_EQ(reason, *choice(whole).find("finish_reason")) << more;
    EXPECT_EQ(stop_reason, *choice(whole).find("stop_reason")) << more;
    if (!choice(whole).find("logprobs")->is_null()) {
      EXPECT_EQ(logprobs, choice(whole).find("logprobs")->find("content")->as_array().size());
    }
    if (const Json* whole_ids = choice(whole).find("token_ids")) {
      EXPECT_EQ(ids.size(), whole_ids->as_array().size());
      EXPECT_EQ(whole.find("prompt_token_ids")->as_array().size(), usage(whole, "prompt_tokens"));
    }
  }
}

TEST_F(Api, StopsAtStrings) {
  const Json response = ask_chat(R"(,"stop":["xyz","ital of"])");
  EXPECT_EQ(content(response), "The cap");
  EXPECT_EQ(choice(response).find("finish_reason")->as_string(), "stop");
  EXPECT_EQ(choice(response).find("stop_reason")->as_string(), "ital of");
  EXPECT_EQ(content(ask_chat(R"(,"stop":"ital of","include_stop_str_in_output":true)")),
            "The capital of");
  EXPECT_EQ(content(ask_chat(R"(,"stop":"The","min_tokens":3)")),
            "The capital of France is Paris.");
  // In reasoning they do not count.
  const Json thought =
      ask_chat(R"(,"stop":"The user","chat_template_kwargs":{"enable_thinking":true})");
  EXPECT_EQ(content(thought), "The capital of France is Paris.");
}

TEST_F(Api, StopsAtIds) {
  const Json tokens = ask("/tokenize", R"({"prompt":" of","add_special_tokens":false})").json();
  const int64_t id = tokens.find("tokens")->as_array().at(0).as_integer();
  const Json response = ask_chat(str_cat(",\"stop_token_ids\":[", id, "]"));
  EXPECT_EQ(content(response), "The capital");
  EXPECT_EQ(choice(response).find("stop_reason")->as_integer(), id);
}

TEST_F(Api, SeedsRepeatThemselves) {
  const auto texts = [](const std::string& more) {
    const Json response = ask("/v1/completions", R"({"prompt":"Once","temperature":2,"top_k":0,)"
                                                 R"("top_p":1,"max_tokens":12)" +
                                                     more + "}")
                              .json();
    std::vector<std::string> all;
    for (const Json& one : response.find("choices")->as_array())
      all.push_back(one.find("text")->as_string());
    return all;
  };
  const std::vector<std::string> first = texts(R"(,"seed":11,"n":3)");
  EXPECT_EQ(first.size(), 3u);
  EXPECT_EQ(first, texts(R"(,"seed":11,"n":3)"));
  EXPECT_NE(first[0], first[1]);
  EXPECT_THAT(texts(R"(,"seed":12)"), ElementsAre(first[1]));  // choice i has seed + i
}

TEST_F(Api, SeedsOfChatsGoUpByChoice) {
  const auto texts = [](const std::string& more) {
    const Json response =
        ask_chat(R"(,"temperature":2,"top_k":0,"top_p":1,"max_tokens":12)" + more);
    std::vector<std::string> all;
    for (const Json& one : response.find("choices")->as_array())
      all.push_back(one.find("message")->find("content")->as_string());
    return all;
  };
  const std::vector<std::string> first = texts(R"(,"seed":11,"n":2)");
  ASSERT_EQ(first.size(), 2u);
  EXPECT_NE(first[0], first[1]);
  EXPECT_THAT(texts(R"(,"seed":12)"), ElementsAre(first[1]));
}

TEST_F(Api, TellsLogprobs) {
  const Json response = ask_chat(R"(,"logprobs":true,"top_logprobs":4)");
  const Json::Array& list = choice(response).find("logprobs")->find("content")->as_array();
  std::string rebuilt;
  for (const Json& token : list) {
    EXPECT_LE(token.find("logprob")->as_double(), 0);
    for (const Json& byte : token.find("bytes")->as_array())
      rebuilt += static_cast<char>(byte.as_integer());
    const Json::Array& top = token.find("top_logprobs")->as_array();
    ASSERT_EQ(top.size(), 4u);
    EXPECT_EQ(top[0].find("token"), top[0].find("token"));
    EXPECT_EQ(top[0].find("logprob")->as_double(), token.find("logprob")->as_double());  // greedy
    EXPECT_GE(top[0].find("logprob")->as_double(), top[3].find("logprob")->as_double());
  }
  EXPECT_EQ(rebuilt, content(response));
}

TEST_F(Api, BiasesTokens) {
  const Json tokens = ask("/tokenize", R"({"prompt":" Paris"})").json();
  const int64_t id = tokens.find("tokens")->as_array().at(0).as_integer();
  EXPECT_THAT(content(ask_chat(str_cat(R"(,"logit_bias":{")", id, "\":-100}"))),
              Not(HasSubstr(" Paris")));
}

TEST_F(Api, GoesOnWithAMessage) {
  const Answer answer = ask(
      "/v1/chat/completions",
      R"({"temperature":0,"messages":[{"role":"user","content":"What is the capital of France?"},
      {"role":"assistant","content":"The capital of"}],"continue_final_message":true,
      "add_generation_prompt":false})");
  EXPECT_EQ(content(answer.json()), " France is Paris.");
}

TEST_F(Api, CompletesPrompts) {
  const Json response =
      ask("/v1/completions",
          R"({"model":"m","prompt":["1, 2, 3, 4,","a b c"],"max_tokens":4,"temperature":0,"n":2,
          "logprobs":2,"echo":false})")
          .json();
  EXPECT_EQ(response.find("object")->as_string(), "text_completion");
  ASSERT_EQ(response.find("choices")->as_array().size(), 4u);
  EXPECT_EQ(choice(response, 0).find("text")->as_string(), " 5, ");
  EXPECT_EQ(choice(response, 1).find("text")->as_string(), " 5, ");
  const Json& logprobs = *choice(response).find("logprobs");
  EXPECT_EQ(logprobs.find("tokens")->dump(), R"([" ","5",","," "])");
  EXPECT_EQ(logprobs.find("text_offset")->dump(), "[0,1,2,3]");
  EXPECT_EQ(logprobs.find("top_logprobs")->as_array().at(0).as_object().size(), 2u);
  EXPECT_EQ(logprobs.find("token_logprobs")->as_array().size(), 4u);
  // The default length, the echo, and prompts as ids.
  const Json echo =
      ask("/v1/completions", R"({"prompt":"1, 2,","temperature":0,"echo":true})").json();
  EXPECT_THAT(choice(echo).find("text")->as_string(), testing::StartsWith("1, 2, 3"));
  EXPECT_LE(usage(echo, "completion_tokens"), 16);
  const Json ids = ask("/tokenize", R"({"prompt":"1, 2, 3, 4,"})").json();
  const Json same = ask("/v1/completions", "{\"prompt\":" + ids.find("tokens")->dump() +
                                               ",\"max_tokens\":4,\"temperature\":0}")
                        .json();
  EXPECT_EQ(choice(same).find("text")->as_string(), " 5, ");
}

TEST_F(Api, StreamsCompletions) {
  const std::vector<Json> events = stream(
      "/v1/completions",
      R"({"prompt":"1, 2, 3,","max_tokens":16,"min_tokens":16,"ignore_eos":true,"stream":true,
             "temperature":0,"stream_options":{"include_usage":true,"continuous_usage_stats":true}})");
  int texts = 0;
  for (const Json& event : events)
    for (const Json& c : event.find("choices")->as_array())
      texts += c.find("text")->as_string().empty() ? 0 : 1;
  EXPECT_GE(texts, 15);
  EXPECT_EQ(usage(events[2], "completion_tokens"), 3);
  for (const Json& event : stream("/v1/chat/completions",
                                  chat(R"(,"stream":true,"stream_options":{"include_usage":true,)"
                                       R"("continuous_usage_stats":true})")))
    EXPECT_NE(event.find("usage"), nullptr) << event.dump();
  EXPECT_EQ(usage(events.back(), "completion_tokens"), 16);
}

TEST_F(Api, TokenizesBothWays) {
  const Json tokens =
      ask("/tokenize", R"({"content":"Hello <|im_end|>","with_pieces":true})").json();
  EXPECT_EQ(tokens.find("count")->as_integer(),
            static_cast<int64_t>(tokens.find("tokens")->as_array().size()));
  EXPECT_EQ(tokens.find("tokens")->as_array().back().as_integer(), 4002);
  EXPECT_EQ(tokens.find("token_strs")->as_array().back().as_string(), "<|im_end|>");
  const Json text = ask("/detokenize", "{\"tokens\":" + tokens.find("tokens")->dump() + "}").json();
  EXPECT_EQ(text.find("prompt")->as_string(), "Hello <|im_end|>");
  EXPECT_EQ(text.find("content")->as_string(), "Hello <|im_end|>");
  // A client's text is no control token in a chat.
  const Json chatted =
      ask("/tokenize", R"({"messages":[{"role":"user","content":"<|im_end|>"}]})").json();
  int ends = 0;
  for (const Json& id : chatted.find("tokens")->as_array()) ends += id.as_integer() == 4002 ? 1 : 0;
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(ask("/detokenize", R"({"tokens":[999999]})").status, 400);
}

TEST_F(Api, AppliesTheTemplate) {
  const std::string messages =
      R"({"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"enable_thinking":)";
  const auto prompt = [&](const char* thinking) {
    return ask("/apply-template", str_cat(messages, thinking, "}}"))
        .json()
        .find("prompt")
        ->as_string();
  };
  EXPECT_EQ(prompt("true"), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(prompt("false"), prompt("true") + "\n</think>\n\n");
}

TEST_F(Api, ListsModels) {
  const Json list = get(server().port(), "/v1/models").json();
  EXPECT_EQ(list.find("data")->as_array().at(0).find("id")->as_string(), "m");
  EXPECT_EQ(get(server().port(), "/v1/models/m").json().find("max_model_len")->as_integer(), 8192);
  EXPECT_EQ(get(server().port(), "/v1/models/n").status, 404);
  EXPECT_EQ(get(server().port(), "/version").json().find("version")->as_string(), "test");
  EXPECT_EQ(get(server().port(), "/health").json().find("status")->as_string(), "ok");
  EXPECT_EQ(get(server().port(), "/ping").status, 200);
}

TEST_F(Api, RefusesWithTheField) {
  struct Case {
    std::string path, body;
    int status;
    std::string param, text;
  };
  std::string book = "a";
  for (int i = 0; i < 9000; ++i) book += " lorem";
  const std::string whole = "/v1/chat/completions";
  for (const Case& c : {
           Case{whole, chat(",\"model\":\"no-such-model\""), 404, "\"model\"", "no-such-model"},
           Case{whole, chat("", book), 400, "null", "maximum context length is 8192 tokens"},
           Case{"/v1/completions", "{\"prompt\":\"" + book + "\"}", 400, "null",
                "maximum context length is 8192 tokens"},
           Case{"/v1/completions", R"({"prompt":[999999]})", 400, "\"prompt\"", "token id 999999"},
           Case{"/v1/completions", R"({"prompt":""})", 400, "\"prompt\"", "empty"},
           Case{whole, R"({"messages":[{"role":"system","content":"s"}]})", 400, "null",
                "No user query found"},
           Case{whole, chat(",\"stop_token_ids\":[999999]"), 400, "\"stop_token_ids\"",
                "vocabulary"},
           Case{whole, chat(",\"logit_bias\":{\"999999\":1}"), 400, "\"logit_bias\"", "999999"},
           Case{"/v1/embeddings", "{}", 501, "null", "generate text"},
           Case{"/apply-template", R"({"prompt":"x"})", 400, "\"messages\"", "missing"},
           Case{"/v1/nothing", "{}", 404, "null", "nothing at this path"},
       }) {
    const Answer answer = ask(c.path, c.body);
    EXPECT_EQ(answer.status, c.status) << answer.body;
    const Json body = answer.json();
    const Json& error = *body.find("error");
    EXPECT_EQ(error.find("param")->dump(), c.param) << answer.body;
    EXPECT_THAT(error.find("message")->as_string(), HasSubstr(c.text));
  }
}

TEST_F(Api, RefusesOtherBodies) {
  Client client(server().port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
      "Content-Length: 2\r\n\r\n{}");
  EXPECT_EQ(client.receive().status, 415);
  client.post("/tokenize", R"({"prompt":"a"})");  // the connection lives on
  EXPECT_EQ(client.receive().status, 200);
}

TEST(ApiStates, RefuseWorkWhileLoading) {
  RunningServer server({.ready = false});
  for (const char* path : {"/health", "/v1/models"}) {
    const Answer answer = get(server.port(), path);
    EXPECT_EQ(answer.status, 503) << path;
    EXPECT_THAT(answer.body, HasSubstr("the model is loading"));
  }
  EXPECT_EQ(get(server.port(), "/version").status, 200);
  server.api.serve(server.model);
  EXPECT_EQ(get(server.port(), "/health").status, 200);
  server.api.failed("the device is gone");
  EXPECT_THAT(get(server.port(), "/health").body, HasSubstr("the device is gone"));
}

TEST(ApiStates, WantAKey) {
  RunningServer server({.api_keys = {"first", "second"}});
  const auto with = [&](const std::string& header) {
    Client client(server.port());
    client.send("GET /v1/models HTTP/1.1\r\n" + header + "\r\n");
    return client.receive().status;
  };
  EXPECT_EQ(with(""), 401);
  EXPECT_EQ(with("Authorization: Bearer third\r\n"), 401);
  EXPECT_EQ(with("Authorization: first\r\n"), 401);
  EXPECT_EQ(with("Authorization: Bearer firs\r\n"), 401);
  EXPECT_EQ(with("Authorization: Digest first\r\n"), 401);  // as long as "Bearer"
  EXPECT_EQ(with("Authorization: Bearer first\r\n"), 200);
  EXPECT_EQ(with("authorization: bearer second\r\n"), 200);
  EXPECT_EQ(get(server.port(), "/health").status, 200);
}

TEST(ApiStates, SayWhenAPortIsTaken) {
  RunningServer server;
  const auto second = server::HttpServer::start({.port = server.port()}, {});
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("is in use by another program"));
  const auto nowhere = server::HttpServer::start({.host = "no.such.host.invalid", .port = 0}, {});
  ASSERT_FALSE(nowhere);
  EXPECT_THAT(nowhere.error().message, HasSubstr("no.such.host.invalid"));
}

}  // namespace
}  // namespace pewter::server_test
