// What requests may say, and which field is named when they may not.
#include "server/openai/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/request/errors.h"

namespace pewter::server {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kMessages = R"("messages":[{"role":"user","content":"hi"}])";

ChatRequest chat(const std::string& more) {
  Result<ChatRequest> request = parse_chat_request("{" + kMessages + more + "}", {});
  EXPECT_TRUE(request) << (request ? "" : request.error().message);
  return request ? *std::move(request) : ChatRequest{};
}

// The field that an otherwise good request is refused for.
std::string refused(const std::string& more, const std::string& messages = kMessages) {
  const Result<ChatRequest> request = parse_chat_request("{" + messages + more + "}", {});
  if (request) return "accepted";
  return std::string(field_of(request.error().message));
}

TEST(ChatSchema, ReadsEveryField) {
  const ChatRequest request = chat(
      R"(,"model":"m","stream":true,"stream_options":{"include_usage":true,
      "continuous_usage_stats":true},"n":2,"temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1,
      "presence_penalty":1.5,"frequency_penalty":-1,"repetition_penalty":1.1,"seed":-5,
      "logit_bias":{"17":-100,"4":2.5},"max_tokens":9,"max_completion_tokens":8,"min_tokens":2,
      "ignore_eos":true,"stop":["a","","b"],"stop_token_ids":[3],"skip_special_tokens":false,
      "include_stop_str_in_output":true,"return_token_ids":true,"logprobs":true,"top_logprobs":5,
      "include_reasoning":false,"chat_template_kwargs":{"enable_thinking":false},
      "add_generation_prompt":true,"user":"u","x_unknown":1,"tools":[])");
  const GenerationFields& fields = request.generation;
  EXPECT_EQ(fields.model, "m");
  EXPECT_TRUE(fields.stream && fields.include_usage && fields.continuous_usage);
  EXPECT_EQ(fields.n, 2);
  EXPECT_EQ(fields.sampling.temperature, 0.5f);
  EXPECT_EQ(fields.sampling.top_p, 0.9f);
  EXPECT_EQ(fields.sampling.top_k, 7);
  EXPECT_EQ(fields.sampling.min_p, 0.1f);
  EXPECT_EQ(fields.sampling.presence_penalty, 1.5f);
  EXPECT_EQ(fields.sampling.frequency_penalty, -1.0f);
  EXPECT_EQ(fields.sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(fields.sampling.seed, static_cast<uint64_t>(-5));
  EXPECT_THAT(fields.sampling.logit_bias, ElementsAre(std::pair(17, -100.0f), std::pair(4, 2.5f)));
  EXPECT_EQ(fields.max_tokens, 8);
  EXPECT_EQ(fields.min_tokens, 2);
  EXPECT_TRUE(fields.ignore_eos && fields.include_stop && fields.return_token_ids);
  EXPECT_THAT(fields.stops, ElementsAre("a", "b"));
  EXPECT_THAT(fields.stop_ids, ElementsAre(3));
  EXPECT_FALSE(fields.skip_special);
  EXPECT_EQ(fields.logprobs, 5);
  EXPECT_FALSE(request.include_reasoning);
  EXPECT_FALSE(request.chat.template_kwargs.find("enable_thinking")->as_bool());
  EXPECT_TRUE(request.chat.tools.is_null());
  EXPECT_THAT(request.unread, ElementsAre("x_unknown"));
}

TEST(ChatSchema, KeepsDefaultsWhereARequestIsSilent) {
  const ChatRequest request =
      parse_chat_request("{" + kMessages + R"(,"top_k":null,"stop":null,"temperature":null})",
                         {.defaults = {.temperature = 0.6f, .top_k = 20}})
          .value();
  EXPECT_EQ(request.generation.sampling.temperature, 0.6f);
  EXPECT_EQ(request.generation.sampling.top_k, 20);
  EXPECT_EQ(request.generation.max_tokens, std::nullopt);
  EXPECT_EQ(request.generation.logprobs, -1);
  EXPECT_TRUE(request.chat.add_generation_prompt);
  EXPECT_THAT(request.unread, IsEmpty());
}

TEST(ChatSchema, UnderstandsOtherServersNames) {
  EXPECT_EQ(chat(R"(,"n_predict":5)").generation.max_tokens, 5);
  EXPECT_EQ(chat(R"(,"n_predict":-1)").generation.max_tokens, std::nullopt);
  EXPECT_EQ(chat(R"(,"repeat_penalty":1.2)").generation.sampling.repetition_penalty, 1.2f);
  EXPECT_EQ(chat(R"(,"max_tokens":4.0)").generation.max_tokens, 4);
  EXPECT_EQ(chat(R"(,"seed":-1)").generation.sampling.seed, std::nullopt);
  EXPECT_FALSE(chat(R"(,"reasoning_effort":"none")")
                   .chat.template_kwargs.find("enable_thinking")
                   ->as_bool());
  EXPECT_EQ(chat(R"(,"reasoning_effort":"low")")
                .chat.template_kwargs.find("reasoning_effort")
                ->as_string(),
            "low");
}

TEST(ChatSchema, ReadsThinkingInEveryonesWords) {
  const auto budget = [](const std::string& more) { return chat(more).thinking.budget; };
  for (const char* name :
       {"thinking_token_budget", "thinking_budget", "reasoning_budget", "thinking_budget_tokens"})
    EXPECT_EQ(budget(str_cat(",\"", name, "\":7")), 7) << name;
  EXPECT_EQ(budget(R"(,"thinking":{"type":"enabled","budget_tokens":8})"), 8);
  EXPECT_EQ(budget(R"(,"reasoning":{"max_tokens":9})"), 9);
  EXPECT_EQ(budget(R"(,"thinking_budget":-1)"), -1);
  EXPECT_EQ(budget(""), std::nullopt);
  EXPECT_EQ(chat(R"(,"reasoning_effort":"low")").thinking.effort, "low");
  EXPECT_EQ(chat(R"(,"reasoning":{"effort":"high"})").thinking.effort, "high");
  const auto thinks = [](const std::string& more) {
    const Json kwargs = chat(more).chat.template_kwargs;
    const Json* enable = kwargs.find("enable_thinking");
    return enable == nullptr ? "open" : enable->dump();
  };
  EXPECT_EQ(thinks(""), "open");
  EXPECT_EQ(thinks(R"(,"reasoning_effort":"low")"), "open");
  for (const char* off : {R"(,"enable_thinking":false)", R"(,"thinking":{"type":"disabled"})",
                          R"(,"reasoning":{"enabled":false})", R"(,"reasoning":{"effort":"none"})",
                          R"(,"reasoning_effort":"none")"}) {
    EXPECT_EQ(thinks(off), "false") << off;
    // The template's own variable has the last word.
    EXPECT_EQ(thinks(str_cat(off, R"(,"chat_template_kwargs":{"enable_thinking":true})")), "true");
  }
}

TEST(ChatSchema, NamesTheBadField) {
  for (const auto& [more, field] : std::vector<std::pair<std::string, std::string>>{
           {R"(,"temperature":-1)", "temperature"},
           {R"(,"temperature":"hot")", "temperature"},
           {R"(,"temperature":1e300)", "temperature"},
           {R"(,"top_p":0)", "top_p"},
           {R"(,"top_p":1.1)", "top_p"},
           {R"(,"top_k":-2)", "top_k"},
           {R"(,"top_k":1.5)", "top_k"},
           {R"(,"min_p":2)", "min_p"},
           {R"(,"presence_penalty":3)", "presence_penalty"},
           {R"(,"repetition_penalty":0)", "repetition_penalty"},
           {R"(,"n":0)", "n"},
           {R"(,"n":129)", "n"},
           {R"(,"n":true)", "n"},
           {R"(,"max_tokens":0)", "max_tokens"},
           {R"(,"max_tokens":99999999999999999999)", "max_tokens"},
           {R"(,"min_tokens":-1)", "min_tokens"},
           {R"(,"min_tokens":5,"max_tokens":4)", "min_tokens"},
           {R"(,"seed":"x")", "seed"},
           {R"(,"stop":[1])", "stop[0]"},
           {R"(,"stop":{})", "stop"},
           {R"(,"stop_token_ids":[-1])", "stop_token_ids[0]"},
           {R"(,"logit_bias":{"x":1})", "logit_bias"},
           {R"(,"logit_bias":{"1":101})", "logit_bias"},
           {R"(,"logit_bias":[])", "logit_bias"},
           {R"(,"stream":1)", "stream"},
           {R"(,"stream_options":{"include_usage":true})", "stream_options"},
           {R"(,"stream":true,"stream_options":{"include_usage":1})",
            "stream_options.include_usage"},
           {R"(,"logprobs":true,"top_logprobs":21)", "top_logprobs"},
           {R"(,"logprobs":true,"top_logprobs":"many")", "top_logprobs"},
           {R"(,"top_logprobs":3)", "top_logprobs"},
           {R"(,"logprobs":2)", "logprobs"},
           {R"(,"model":3)", "model"},
           {R"(,"response_format":{"type":"json_schema"})", "response_format"},
           {R"(,"response_format":{"type":"xml"})", "response_format.type"},
           {R"(,"response_format":"json")", "response_format"},
           {R"(,"structured_outputs":{"regex":1})", "structured_outputs.regex"},
           {R"(,"guided_json":[])", "guided_json"},
           {R"(,"guided_json":{},"guided_regex":"a")", "guided_regex"},
           {R"(,"bad_words":["a",5])", "bad_words[1]"},
           {R"(,"bad_words":[""])", "bad_words"},
           {R"(,"allowed_token_ids":[])", "allowed_token_ids"},
           {R"(,"truncate_prompt_tokens":0)", "truncate_prompt_tokens"},
           {R"(,"repetition_detection":{"max_pattern_size":2000})",
            "repetition_detection.max_pattern_size"},
           {R"(,"repetition_detection":{"max_pattern_size":2,"min_pattern_size":3})",
            "repetition_detection.min_pattern_size"},
           {R"(,"thinking_token_budget":-2)", "thinking_token_budget"},
           {R"(,"thinking_budget":"long")", "thinking_budget"},
           {R"(,"thinking":{"type":"deep"})", "thinking.type"},
           {R"(,"reasoning":{"effort":3})", "reasoning.effort"},
           {R"(,"enable_thinking":"no")", "enable_thinking"},
           {R"(,"prompt_logprobs":21)", "prompt_logprobs"},
           {R"(,"prompt_logprobs":1,"stream":true)", "prompt_logprobs"},
           {R"(,"echo":1)", "echo"},
           {R"(,"functions":[{"name":"f"}])", "functions"},
           {R"(,"chat_template":"x")", "chat_template"},
           {R"(,"chat_template_kwargs":[])", "chat_template_kwargs"},
           {R"(,"chat_template_kwargs":{"messages":[]})", "chat_template_kwargs.messages"},
           {R"(,"tool_choice":"required")", "tool_choice"},
           {R"(,"tool_choice":"auto")", "tool_choice"},
           {R"(,"tools":{})", "tools"},
           {R"(,"tools":[{}])", "tools[0].function"},
           {R"(,"tools":[{"function":{}}])", "tools[0].function.name"},
           {R"(,"tools":[{"function":{"name":"f"}}],"tool_choice":"maybe")", "tool_choice"},
           {R"(,"tools":[{"function":{"name":"f"}}],"tool_choice":{"function":{"name":"g"}})",
            "tool_choice.function.name"},
           {R"(,"parallel_tool_calls":"no")", "parallel_tool_calls"},
           {R"(,"continue_final_message":true)", "continue_final_message"}})
    EXPECT_EQ(refused(more), field) << more;
}

TEST(ChatSchema, AcceptsWhatChangesNothing) {
  for (const char* more :
       {R"(,"response_format":{"type":"text"})", R"(,"guided_json":null,"bad_words":[])",
        R"(,"echo":false)", R"(,"tools":[],"tool_choice":null)",
        R"(,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none")",
        R"(,"truncate_prompt_tokens":null,"cache_prompt":false,"metadata":{},"store":false)"})
    EXPECT_EQ(refused(more), "accepted") << more;
}

TEST(ChatSchema, KnowsTheFormOfTheAnswer) {
  using Kind = grammar::AnswerRules::Kind;
  const auto kind = [](const char* more) { return chat(more).generation.format->rules.kind; };
  EXPECT_FALSE(chat(R"(,"response_format":{"type":"text"})").generation.format);
  EXPECT_EQ(kind(R"(,"response_format":{"type":"json_object"})"), Kind::kJsonObject);
  EXPECT_EQ(kind(R"(,"structured_outputs":{"json_object":true})"), Kind::kJsonObject);
  EXPECT_EQ(kind(R"(,"guided_choice":["a"])"), Kind::kChoice);
  EXPECT_EQ(kind(R"(,"guided_grammar":"x")"), Kind::kEbnf);
  const AnswerFormat format =
      *chat(
           R"(,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"a":1}}})")
           .generation.format;
  EXPECT_EQ(format.rules.kind, Kind::kJsonSchema);
  EXPECT_EQ(format.rules.json.dump(), R"({"a":1})");
  EXPECT_EQ(format.path, "response_format.json_schema.schema");
  const ChatRequest named = chat(
      R"(,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"function":{"name":"f"}})");
  EXPECT_EQ(named.tool_choice, ToolChoice::kNamed);
  EXPECT_EQ(named.tool_name, "f");
}

TEST(ChatSchema, KnowsTheTools) {
  const ChatRequest request =
      chat(R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"n":)"
           R"({"type":"integer"}}}}}],"parallel_tool_calls":false,"tool_choice":"auto")");
  EXPECT_EQ(request.tools->types("f", "n"), TypeSet(TypeSet::kInteger));
  EXPECT_EQ(request.tool_choice, ToolChoice::kAuto);
  EXPECT_FALSE(request.parallel_tool_calls);
  EXPECT_EQ(chat("").tools, nullptr);
  EXPECT_EQ(chat(R"(,"tools":[])").tools, nullptr);
  EXPECT_EQ(chat(R"(,"tools":[{"function":{"name":"f"}}],"tool_choice":"none")").tool_choice,
            ToolChoice::kNone);
}

TEST(Body, IsGuarded) {
  const auto message = [](const std::string& body) {
    const Result<ChatRequest> request = parse_chat_request(body, {});
    return request ? "accepted" : request.error().message;
  };
  EXPECT_THAT(message("{\"model\": \"m\", "), HasSubstr("not valid JSON"));
  EXPECT_THAT(message("{\"a\": \"caf\xe9\"}"), HasSubstr("not valid UTF-8 at byte 10"));
  // A syntax error behind the client's text does not repeat it.
  EXPECT_THAT(message(R"({"secret text" 5})"),
              AllOf(HasSubstr("column"), Not(HasSubstr("secret"))));
  EXPECT_THAT(message("[]"), HasSubstr("want a JSON object"));
  EXPECT_THAT(message(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(message("{\"a\":" + std::string(100, '[')), HasSubstr("nested deeper than 64"));
  std::string keys = "{\"metadata\":{";
  for (int i = 0; i < 10001; ++i) keys += str_cat(i > 0 ? "," : "", "\"k", i, "\":1");
  EXPECT_THAT(message(keys + "}," + kMessages + "}"), HasSubstr("more than 10000 keys"));
}

TEST(CompletionSchema, ReadsEveryKindOfPrompt) {
  const auto prompts = [](const std::string& prompt) {
    return parse_completion_request("{\"prompt\":" + prompt + "}", {});
  };
  EXPECT_EQ(std::get<std::string>(prompts("\"a\"")->prompts.at(0)), "a");
  EXPECT_EQ(prompts(R"(["a","b"])")->prompts.size(), 2u);
  EXPECT_THAT(std::get<std::vector<int32_t>>(prompts("[1,2]")->prompts.at(0)), ElementsAre(1, 2));
  EXPECT_EQ(prompts("[[1],[2,3]]")->prompts.size(), 2u);
  for (const auto& [prompt, field] : std::vector<std::pair<std::string, std::string>>{
           {"5", "prompt"},
           {"[]", "prompt"},
           {"null", "prompt"},
           {"[1,\"a\"]", "prompt[1]"},
           {"[\"a\",5]", "prompt[1]"},
           {"[[1,-2]]", "prompt[0][1]"},
           {"\"a\",\"suffix\":\"b\"", "suffix"},
           {"\"a\",\"best_of\":3", "best_of"},
           {"\"a\",\"logprobs\":21", "logprobs"},
           {"\"a\",\"logprobs\":true", "logprobs"}}) {
    const Result<CompletionRequest> request = prompts(prompt);
    EXPECT_EQ(request ? "accepted" : field_of(request.error().message), field) << prompt;
  }
}

TEST(TokenizeSchema, TakesBothSpellings) {
  EXPECT_EQ(parse_tokenize_request(R"({"prompt":"a"})", {})->text, "a");
  EXPECT_EQ(parse_tokenize_request(R"({"content":"b","with_pieces":true})", {})->text, "b");
  EXPECT_TRUE(parse_tokenize_request("{" + kMessages + "}", {})->chat);
  EXPECT_EQ(field_of(parse_tokenize_request("{}", {}).error().message), "prompt");
  EXPECT_THAT(parse_detokenize_request(R"({"tokens":[1,2]})")->tokens, ElementsAre(1, 2));
  EXPECT_EQ(field_of(parse_detokenize_request("{}").error().message), "tokens");
  EXPECT_EQ(field_of(parse_detokenize_request(R"({"tokens":["a"]})").error().message), "tokens[0]");
}

TEST(Errors, BecomeAnswers) {
  const auto of = [](ErrorCode code, const std::string& message) {
    const HttpResponse response = error_response({code, message});
    const Json body = Json::parse(response.body).value();
    const Json& error = *body.find("error");
    return str_cat(response.status, " ", error.find("type")->as_string(), " ",
                   error.find("param")->dump(), " ", error.find("code")->dump());
  };
  EXPECT_EQ(of(ErrorCode::kInvalidArgument, "top_p: 2 is wrong"),
            R"(400 BadRequestError "top_p" 400)");
  EXPECT_EQ(of(ErrorCode::kUnsupported, "messages[0].content[1]: no"),
            R"(400 BadRequestError "messages[0].content[1]" 400)");
  EXPECT_EQ(of(ErrorCode::kNotFound, "model: none"),
            R"(404 NotFoundError "model" "model_not_found")");
  EXPECT_EQ(of(ErrorCode::kResourceExhausted, "the queue is full: 3"),
            "429 RateLimitError null 429");
  EXPECT_EQ(of(ErrorCode::kUnavailable, "x"), "503 unavailable_error null 503");
  EXPECT_EQ(of(ErrorCode::kInternal, "x"), "500 InternalServerError null 500");
  EXPECT_EQ(of(ErrorCode::kInvalidArgument, "This model's maximum context length is 5 tokens."),
            R"(400 BadRequestError null "context_length_exceeded")");
  EXPECT_NE(
      find_header(error_response({ErrorCode::kResourceExhausted, "x"}).headers, "Retry-After"),
      nullptr);
  EXPECT_EQ(safe_quote("a\x1b[2J\xff"), "\"a\uFFFD[2J\uFFFD\"");
  EXPECT_EQ(safe_quote(std::string(100, 'x')), "\"" + std::string(64, 'x') + "…\"");
}

}  // namespace
}  // namespace pewter::server
