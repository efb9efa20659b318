#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/file.h"

namespace pewter {
namespace {

ChatTemplate parse(std::string source) {
  auto parsed = ChatTemplate::parse(std::move(source));
  CHECK(parsed.has_value(), parsed.error().message);
  return std::move(*parsed);
}

ChatTemplate demo() {
  return parse(read_file(str_cat(PEWTER_SOURCE_DIR, "/models/demo/chat_template.jinja")).value());
}

ChatTemplateInput conversation(std::string_view messages) {
  ChatTemplateInput input;
  input.messages = Json::parse(messages).value();
  return input;
}

// The prompt with its foreign stretches in guillemets.
std::string marked(const RenderedPrompt& prompt) {
  std::string out;
  size_t at = 0;
  for (const ByteRange& range : prompt.foreign) {
    out += prompt.text.substr(at, range.begin - at) + "«" +
           prompt.text.substr(range.begin, range.end - range.begin) + "»";
    at = range.end;
  }
  return out + prompt.text.substr(at);
}

std::string marked(const ChatTemplate& source, const ChatTemplateInput& input) {
  const auto prompt = source.render(input);
  return prompt ? marked(*prompt) : "error: " + prompt.error().message;
}

// Renders with one user message and tells the foreign parts apart.
std::string marks(std::string source, std::string_view content) {
  ChatTemplateInput input;
  input.messages =
      Json(Json::Array{Json(Json::Object{{"role", "user"}, {"content", Json(content)}})});
  input.tools = Json::parse(R"([{"name":"<|im_end|>"}])").value();
  input.kwargs = Json::parse(R"({"extra":"<|im_end|>","number":5})").value();
  return marked(parse("{% set c = messages[0].content %}" + std::move(source)), input);
}

TEST(ChatTemplate, DemoTemplate) {
  const auto prompt =
      demo().render(conversation(R"([{"role":"user","content":"  Name a river. \n"}])"));
  ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
  EXPECT_EQ(prompt->text,
            "<|im_start|>user\nName a river.<|im_end|>\n<|im_start|>assistant\n<think>\n");
}

TEST(ChatTemplate, TellsTheClientsBytesFromTheTemplates) {
  EXPECT_EQ(marked(demo(), conversation(R"([{"role":"user","content":" <|im_end|> é "}])")),
            "<|im_start|>user\n«<|im_end|> é»<|im_end|>\n<|im_start|>assistant\n<think>\n");
  ChatTemplateInput input = conversation(
      R"([{"role":"system","content":"S"},{"role":"user","content":"q"},{"role":"assistant",
          "content":"<think>r</think>a","tool_calls":[{"name":"f","arguments":{"k":["v"],"n":1}}]},
          {"role":"tool","content":"<|im_end|>"}])");
  input.tools = Json::parse(R"([{"name":"<|im_end|>"}])").value();
  input.add_generation_prompt = false;
  const std::string text = marked(demo(), input);
  EXPECT_NE(text.find("«{\"name\": \"<|im_end|>\"}»\n</tools>"), std::string::npos) << text;
  EXPECT_NE(text.find("</tool_call>\n\n«S»<|im_end|>\n"), std::string::npos) << text;
  EXPECT_NE(text.find("<think>\n«r»\n</think>\n\n«a»\n\n<tool_call>\n<function=«f»>\n"
                      "<parameter=«k»>\n«[\"v\"]»\n</parameter>\n<parameter=«n»>\n«1»\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("<tool_response>\n«<|im_end|>»\n</tool_response><|im_end|>\n"),
            std::string::npos)
      << text;
}

TEST(ChatTemplate, MarksSurviveEveryOperation) {
  EXPECT_EQ(marks("<a>{{ c }}<b>", "<|im_end|>"), "<a>«<|im_end|>»<b>");
  EXPECT_EQ(marks("{{ '<a>' + c | trim + '<b>' }}", " x "), "<a>«x»<b>");
  EXPECT_EQ(marks("{{ ('[' ~ c ~ ']').strip('[]') }}", "x"), "«x»");
  EXPECT_EQ(marks("{{ ('ab' + c + 'cd')[1:-1] }}", "x"), "b«x»c");
  EXPECT_EQ(marks("{{ ('ab' + c)[::-1] }}", "xy"), "«yx»ba");
  EXPECT_EQ(marks("{{ ('ab' + c)[-1] ~ ('ab' + c)[0] }}", "x"), "«x»a");
  EXPECT_EQ(marks("{{ (c + '-end').split('-')[-1] ~ (c + '-end').split('-')[0] }}", "x"), "end«x»");
  EXPECT_EQ(marks("{{ c.split() | join('<s>') }}", "x y"), "«x»<s>«y»");
  EXPECT_EQ(marks("{{ '<|im_end|>'.join([c, 'z']) }}", "x"), "«x»<|im_end|>z");
  EXPECT_EQ(marks("{{ c.replace('x', '<s>') }}", "axb"), "«a»<s>«b»");
  EXPECT_EQ(marks("{{ 'a1b' | replace('1', c) }}", "x"), "a«x»b");
  EXPECT_EQ(marks("{{ 'a1b'.replace(c, '<s>') }}", "1"), "a<s>b");
  EXPECT_EQ(marks("{{ ('a' + c) | upper }}{{ 'a' | upper }}", "x"), "«AX»A");
  EXPECT_EQ(marks("{{ ('a' + c) | title }}{{ ('a' + c).lower() }}", "x"), "«Axax»");
  EXPECT_EQ(marks("{{ ('<' + c) | e }}", "<"), "&lt;«&lt;»");
  EXPECT_EQ(marks("{{ ('<' | safe) + c }}", "<"), "<«&lt;»");
  EXPECT_EQ(marks("{{ 'a%sb' % c }}{{ '%s' | format(c) }}", "x"), "a«x»b«x»");
  EXPECT_EQ(marks("{{ c | indent(2, true) }}", "x\ny"), "  «x»\n  «y»");
  EXPECT_EQ(marks("{{ c | string }}{{ c | default('d') }}{{ c | list | first }}", "x"), "«xxx»");
  EXPECT_EQ(marks("{{ c * 2 }}{{ '-' * 2 }}", "x"), "«xx»--");
  EXPECT_EQ(marks("{{ c.partition('=')[2] ~ ':' ~ c.splitlines()[0] }}", "a=b"), "«b»:«a=b»");
  EXPECT_EQ(marks("{% for x in c %}[{{ x }}]{% endfor %}", "xy"), "[«x»][«y»]");
  EXPECT_EQ(marks("{% macro m(t) %}<{{ t }}>{% endmacro %}{{ m(c) | trim('<>') }}", "x"), "«x»");
  EXPECT_EQ(marks("{% set b %}<{{ c }}>{% endset %}{{ b }}", "x"), "<«x»>");
  EXPECT_EQ(marks("{% filter trim %} {{ c }}. {% endfilter %}", "x"), "«x».");
  EXPECT_EQ(marks("{% set n = namespace(t='<') %}{% set n.t = n.t + c %}{{ n.t }}", "x"), "<«x»");
  EXPECT_EQ(marks("{{ messages[0] | tojson }}", "x"), "«{\"role\": \"user\", \"content\": \"x\"}»");
  EXPECT_EQ(marks("{{ tools | tojson(indent=1) }}|{{ extra }}", ""),
            "«[\n {\n  \"name\": \"<|im_end|>\"\n }\n]»|«<|im_end|>»");
  EXPECT_EQ(marks("{{ number }}{{ [c] }}{{ true }}", "x"), "«5['x']True»");
  EXPECT_EQ(marks("{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}", "x"),
            "«role»=«user»;«content»=«x»;");
  EXPECT_EQ(marks("{{ {'<|im_start|>': 1} | first }}{{ ['<s>'][0] }}", ""), "<|im_start|><s>");
}

TEST(ChatTemplate, SpecialTokensAreTheTemplatesOwn) {
  ChatTemplateInput input = conversation("[]");
  input.special_tokens = Json::parse(R"({"bos_token":"<s>"})").value();
  input.kwargs = Json::parse(R"({"name":"<s>","messages":"no"})").value();
  EXPECT_EQ(marked(parse("{{ bos_token }}{{ name }}{{ messages is string }}"), input),
            "<s>«<s>False»");
  input.kwargs = Json::parse(R"({"bos_token":"<t>"})").value();
  EXPECT_EQ(marked(parse("{{ bos_token }}"), input), "«<t>»");
}

TEST(ChatTemplate, ErrorsSayWhereAndWho) {
  const auto refused = demo().render(conversation("[]"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().message, "No messages provided.");

  const auto broken = parse("a\n\n{{ messages[0].x.y }}").render(conversation("[{}]"));
  ASSERT_FALSE(broken.has_value());
  EXPECT_EQ(broken.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(broken.error().message, "chat template, line 3: 'dict object' has no attribute 'x'");

  // The line of the innermost part that failed, in a macro too.
  const auto in_macro = parse("{% macro m(a) %}\n{{ a\n + 1 }}\n{% endmacro %}\n\n{{ m('x') }}")
                            .render(conversation("[]"));
  ASSERT_FALSE(in_macro.has_value());
  EXPECT_NE(in_macro.error().message.find("chat template, line 3: "), std::string::npos)
      << in_macro.error().message;

  const auto bad = ChatTemplate::parse("x\n{% if %}");
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().code, ErrorCode::kCorruptData);
  EXPECT_EQ(bad.error().message.substr(0, 23), "chat template, line 2: ") << bad.error().message;

  const auto unknown = ChatTemplate::parse("{% include 'x' %}");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().message, "chat template, line 1: unknown tag 'include'");

  ChatTemplateInput input;
  input.messages = Json("\xff");
  const auto no_utf8 = demo().render(input);
  ASSERT_FALSE(no_utf8.has_value());
  EXPECT_EQ(no_utf8.error().code, ErrorCode::kInvalidArgument);
}

TEST(ChatTemplate, TellsTheGivenTime) {
  ChatTemplateInput input = conversation("[]");
  std::tm time{};
  time.tm_year = 126;
  time.tm_mon = 1;
  time.tm_mday = 28;
  input.local_time = time;
  EXPECT_EQ(parse("{{ strftime_now('%d %B %Y') }}").render(input).value().text, "28 February 2026");
  input.local_time.reset();
  EXPECT_EQ(parse("{{ strftime_now('%Y') | length }}").render(input).value().text, "4");
}

TEST(ChatTemplate, LongConversationsStayWithinTheLimits) {
  Json::Array messages;
  for (int i = 0; i < 4000; ++i) {
    const Json text(std::string(i == 2000 ? 20'000'000 : 2000, 'a'));
    messages.push_back(
        Json::Object{{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", text}});
  }
  ChatTemplateInput input;
  input.messages = std::move(messages);
  const auto prompt = demo().render(input);
  ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
  EXPECT_GT(prompt->text.size(), 27'000'000u);
  EXPECT_EQ(prompt->foreign.size(), 4000u);
}

TEST(ChatTemplate, RendersInSeveralThreadsAtOnce) {
  const ChatTemplate shared = demo();
  const ChatTemplateInput input = conversation(R"([{"role":"user","content":"hi"}])");
  const std::string want = shared.render(input).value().text;
  std::vector<std::thread> threads;
  std::array<int, 4> same{};
  for (int& count : same)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) count += shared.render(input).value().text == want;
    });
  for (std::thread& thread : threads) thread.join();
  for (const int count : same) EXPECT_EQ(count, 200);
}

}  // namespace
}  // namespace pewter
