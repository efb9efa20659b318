// Text of a model: whatever it is, the message it becomes does not depend on how it is cut, indexes
// of calls go up one by one, and arguments of whole calls are JSON objects. The first byte chooses
// options, the second how the text is cut.
#include <array>

#include "base/check.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "text/output_parser.h"

using namespace pewter;

namespace {

struct Call {
  std::string name, arguments;
  bool operator==(const Call&) const = default;
};

struct Message {
  std::string reasoning, answer, finish_reason;
  std::vector<Call> calls;
  bool operator==(const Message&) const = default;
};

const std::shared_ptr<const ToolSchemas>& tools() {
  static const auto made = std::make_shared<const ToolSchemas>(
      Json::parse(R"([{"name":"f","parameters":{"properties":{"a":{"type":"string"},
          "n":{"type":["integer","null"]},"o":{"type":["object","array"]}}}},{"name":"g"}])")
          .value());
  return made;
}

void add(Message& message, const OutputDelta& delta) {
  message.reasoning += delta.reasoning;
  message.answer += delta.answer;
  for (const ToolCallDelta& call : delta.calls) {
    const auto index = static_cast<size_t>(call.index);
    CHECK(call.begins == (index == message.calls.size()), "a call out of order");
    CHECK(call.begins == !call.name.empty(), "a name in the wrong place");
    if (call.begins) message.calls.push_back({call.name, ""});
    message.calls.at(index).arguments += call.arguments;
  }
}

Message parse(const OutputParserOptions& options, Ending ending, std::string_view text,
              size_t longest, uint64_t seed) {
  OutputParser parser(options);
  Message message;
  Rng rng(seed);
  while (!text.empty()) {
    const size_t size = std::min<size_t>(text.size(), 1 + rng.below(longest));
    add(message, parser.push(text.substr(0, size)));
    text.remove_prefix(size);
  }
  add(message, parser.finish(ending));
  message.finish_reason = parser.finish_reason();
  return message;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string text =
      replace_invalid_utf8({reinterpret_cast<const char*>(data) + 2, size - 2});
  const uint8_t flags = data[0];
  const OutputParserOptions options{
      .in_reasoning = (flags & 1) != 0,
      .tools = (flags & 2) != 0 ? nullptr : tools(),
      .tool_choice = (flags & 4) != 0 ? ToolChoice::kNamed : ToolChoice::kAuto,
      .parallel_calls = (flags & 8) == 0};
  const Ending ending = (flags & 16) != 0 ? Ending::kLength : Ending::kStop;
  const Message whole = parse(options, ending, text, text.size() + 1, 0);
  CHECK(parse(options, ending, text, 1, 0) == whole, "another message byte by byte");
  CHECK(parse(options, ending, text, 1 + data[1] % 32, data[1]) == whole,
        "another message in pieces");
  for (const std::string* part : {&whole.reasoning, &whole.answer})
    CHECK(is_valid_utf8(*part), "text that is not UTF-8");
  for (size_t i = 0; i < whole.calls.size(); ++i) {
    const Result<Json> arguments = Json::parse(whole.calls[i].arguments);
    // Only the last call may have been cut off.
    if (i + 1 < whole.calls.size() || whole.finish_reason == "tool_calls")
      CHECK((arguments && arguments->is_object()) ||
                (i + 1 == whole.calls.size() && ending == Ending::kStop),
            "arguments that are no object");
    CHECK(is_valid_utf8(whole.calls[i].arguments), "arguments that are not UTF-8");
  }
  return 0;
}
