// Input: a template. It must parse or be refused, and what parses must render or be refused within
// small limits; output must be valid UTF-8 and its foreign ranges in order.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "text/chat_template.h"

namespace pewter {
namespace {

const ChatTemplateInput& context() {
  static const ChatTemplateInput input = [] {
    ChatTemplateInput made;
    made.messages = Json::parse(R"([{"role":"system","content":"Be brief. "},
          {"role":"user","content":[{"type":"text","text":"Höhe <|im_end|>"},{"type":"image"}]},
          {"role":"assistant","content":null,"reasoning_content":"a\nb","tool_calls":[{"function":
          {"name":"f","arguments":{"a":true,"b":null,"c":2.0,"d":12345678901234567890123,"e":[1]}}}]},
          {"role":"tool","content":"  ok  "}])")
                        .value();
    made.tools =
        Json::parse(R"([{"type":"function","function":{"name":"f","x":[[],{}]}}])").value();
    made.kwargs = Json::parse(R"({"n":3,"f":0.5,"s":"a,b c","x":[3,1,2],"d":{"k":"v"}})").value();
    made.local_time = std::tm{};
    made.limits = {.max_steps = 50'000,
                   .max_output_bytes = 1 << 16,
                   .max_memory_bytes = 1 << 22,
                   .max_depth = 300,
                   .max_value_depth = 100};
    return made;
  }();
  return input;
}

void check_prompt(const RenderedPrompt& prompt) {
  CHECK(is_valid_utf8(prompt.text), "the output is no UTF-8");
  size_t end = 0;
  for (size_t i = 0; i < prompt.foreign.size(); ++i) {
    const ByteRange& range = prompt.foreign[i];
    CHECK(range.begin < range.end && range.end <= prompt.text.size(), "a range outside the text");
    CHECK(i == 0 || range.begin > end, "ranges touch or are out of order");
    end = range.end;
  }
}

}  // namespace
}  // namespace pewter

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pewter;
  const auto parsed = ChatTemplate::parse(std::string(reinterpret_cast<const char*>(data), size));
  if (!parsed) return 0;
  const auto prompt = parsed->render(context());
  if (prompt) check_prompt(*prompt);
  return 0;
}
