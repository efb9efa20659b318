// The formats that tell an answer block by block: what their events build is what they say at once,
// for every case of tests/golden/text/tool_calls.json, however its text is cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/utf8.h"
#include "server/anthropic/messages_format.h"
#include "server/responses/responses_format.h"

namespace pewter::server {
namespace {

const std::string kSource = PEWTER_SOURCE_DIR;

const Tokenizer& tokenizer() {
  static const Tokenizer demo = Tokenizer::load(kSource + "/models/demo").value();
  return demo;
}

struct Case {
  std::string id, text;
  OutputParserOptions parser;
  Ending ending = Ending::kStop;
};

std::vector<Case> cases() {
  const Json file =
      Json::parse(read_file(kSource + "/tests/golden/text/tool_calls.json", 1 << 20).value())
          .value();
  std::vector<Case> all;
  for (const Json& one : file.find("cases")->as_array()) {
    const Json* tools = file.find("tool_sets")->find(one.find("tool_set")->as_string());
    Case& made = all.emplace_back();
    made.id = one.find("id")->as_string();
    made.text = one.find("model_output")->as_string();
    made.parser.in_reasoning = one.find("thinking")->as_bool();
    made.parser.tools = std::make_shared<const ToolSchemas>(*tools);
    if (one.find("end")->as_string() == "length") made.ending = Ending::kLength;
  }
  return all;
}

// What a format makes of a text in pieces of so many characters: its events, and the whole.
struct Told {
  std::string events, whole;
};
Told tell(ResponseFormat& format, const Case& one, size_t characters) {
  std::deque<Choice> choices;
  Choice& choice =
      choices.emplace_back(0, 0, Request{}, ChoiceText(tokenizer(), ChoiceTextOptions{}));
  const Usage usage{.prompt_tokens = 1, .completion_tokens = 2};
  OutputParser parser(one.parser);
  Told told;
  format.begin(choice, &usage, told.events);
  for (std::string_view rest = one.text; !rest.empty();) {
    size_t size = 0;
    for (size_t n = 0; n < characters && size < rest.size(); ++n)
      size += static_cast<size_t>(utf8_next(rest.substr(size)).length);
    const OutputDelta delta = parser.push(rest.substr(0, size));
    choice.message.append(delta);
    format.token(choice, {}, delta, &usage, told.events);
    rest.remove_prefix(size);
  }
  const OutputDelta held = parser.finish(one.ending);
  choice.message.append(held);
  choice.finish_reason = parser.finish_reason();
  format.end(choice, held, &usage, "", told.events);
  format.finish(told.events);
  told.whole = format.whole(choices, usage, "");
  return told;
}

std::vector<Json> events_of(const std::string& stream) {
  std::vector<Json> events;
  for (size_t at = 0; (at = stream.find("\ndata: ", at)) != std::string::npos;) {
    at += 7;
    events.push_back(Json::parse(stream.substr(at, stream.find('\n', at) - at)).value());
  }
  return events;
}

void add_text(Json& block, const char* field, const Json& more) {
  block.set(field, block.find(field)->as_string() + more.as_string());
}

// The content that Anthropic's events build, as clients do it; half a call stays half a call.
Json::Array built_message(const std::string& stream) {
  Json::Array blocks;
  std::string input;
  for (const Json& event : events_of(stream)) {
    const std::string& type = event.find("type")->as_string();
    if (type == "content_block_start") {
      EXPECT_EQ(event.find("index")->as_integer(), std::ssize(blocks));
      blocks.push_back(*event.find("content_block"));
      input.clear();
    } else if (type == "content_block_delta") {
      const Json& delta = *event.find("delta");
      for (const char* field : {"text", "thinking", "signature"})
        if (const Json* more = delta.find(field)) add_text(blocks.back(), field, *more);
      if (const Json* more = delta.find("partial_json")) input += more->as_string();
    } else if (type == "content_block_stop" && blocks.back().find("input") != nullptr) {
      const Result<Json> arguments = Json::parse(input);
      if (arguments && arguments->is_object())
        blocks.back().set("input", *arguments);
      else
        blocks.pop_back();  // the answer was cut there: nothing follows
    }
  }
  return blocks;
}

TEST(BlockFormats, AnthropicsEventsBuildTheMessage) {
  const auto model = std::make_shared<ServedModel>();
  model->names = {"m"};
  size_t blocks = 0;
  for (const Case& one : cases())
    for (const size_t characters : {1u, 3u, 100000u}) {
      const auto format = make_messages_format(model);
      const Told told = tell(*format, one, characters);
      const Json whole = Json::parse(told.whole).value();
      const Json built(built_message(told.events));
      EXPECT_EQ(built, *whole.find("content")) << one.id << ", pieces of " << characters << "\n"
                                               << told.events;
      blocks += built.as_array().size();
      const std::vector<Json> events = events_of(told.events);
      EXPECT_EQ(*events.at(events.size() - 2).find("delta")->find("stop_reason"),
                *whole.find("stop_reason"))
          << one.id;
    }
  EXPECT_GT(blocks, 200u);
}

TEST(BlockFormats, ResponsesEventsBuildTheResponse) {
  const auto model = std::make_shared<ServedModel>();
  model->names = {"m"};
  for (const Case& one : cases())
    for (const size_t characters : {1u, 3u, 100000u}) {
      const auto format = make_responses_format(model, Json(Json::Object{}));
      const Told told = tell(*format, one, characters);
      const Json whole = Json::parse(told.whole).value();
      Json::Array items;
      std::string deltas;  // of the item in work
      for (const Json& event : events_of(told.events)) {
        const std::string& type = event.find("type")->as_string();
        if (type == "response.output_item.added") deltas.clear();
        if (const Json* delta = event.find("delta")) deltas += delta->as_string();
        if (type != "response.output_item.done") continue;
        items.push_back(*event.find("item"));
        const Json* content = items.back().find("content");
        const Json* text = content == nullptr ? items.back().find("arguments")
                                              : content->as_array().at(0).find("text");
        EXPECT_EQ(deltas, text->as_string()) << one.id;
      }
      EXPECT_EQ(Json(items), *whole.find("output")) << one.id << ", pieces of " << characters;
      EXPECT_EQ(*events_of(told.events).back().find("response"), whole) << one.id;
    }
}

}  // namespace
}  // namespace pewter::server
