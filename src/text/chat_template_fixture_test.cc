// Holds chat templates against Python's Jinja2 on thousands of random conversations
// (tools/make_template_fixtures.py). The public template of the larger checkpoints is not part of
// this repository: its tests look for it in the directory PEWTER_SHARED and skip without.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "text/chat_template.h"

namespace pewter {
namespace {

constexpr int kShownFailures = 10;

std::string source_path(std::string_view path) { return str_cat(PEWTER_SOURCE_DIR, "/", path); }

std::string shared_path(std::string_view path) {
  const char* shared = std::getenv("PEWTER_SHARED");
  return str_cat(shared != nullptr ? std::string(shared) : source_path("../shared"), "/", path);
}

std::string public_template_path() { return shared_path("data/qwen3.5-chat-template.jinja"); }

std::string fnv1a(std::string_view bytes) {
  uint64_t value = 0xCBF29CE484222325u;
  for (const char byte : bytes) value = (value ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[(value >> shift) & 15];
  return digits;
}

const Json& fixture() {
  static const Json json =
      Json::parse(read_file(source_path("tests/golden/text/templates.json")).value()).value();
  return json;
}

const Json& at(const Json& array, const Json& index) {
  return array.as_array().at(static_cast<size_t>(index.as_integer()));
}

// A row of the fixture: [message indexes, tools index, kwargs index, generation prompt, outcomes].
ChatTemplateInput input_of(const Json::Array& row) {
  ChatTemplateInput input;
  Json::Array messages;
  for (const Json& index : row[0].as_array())
    messages.push_back(at(*fixture().find("messages"), index));
  input.messages = std::move(messages);
  input.tools = at(*fixture().find("tools"), row[1]);
  input.kwargs = at(*fixture().find("kwargs"), row[2]);
  input.add_generation_prompt = row[3].as_bool();
  std::tm now{};  // the fixture's 2025-03-09 07:05:04
  now.tm_year = 125;
  now.tm_mon = 2;
  now.tm_mday = 9;
  now.tm_hour = 7;
  now.tm_min = 5;
  now.tm_sec = 4;
  input.local_time = now;
  return input;
}

// Empty when the outcome is the expected one: a digest of the text, or the number of an error.
std::string difference(const Result<RenderedPrompt>& got, const Json& want) {
  if (want.is_string()) {
    if (!got) return str_cat("failed: ", got.error().message);
    return fnv1a(got->text) == want.as_string() ? "" : str_cat("printed\n", got->text);
  }
  const std::string& error = at(*fixture().find("errors"), want).as_string();
  if (got) return str_cat("did not end in \"", error, "\" but printed\n", got->text);
  const bool raised = got.error().code == ErrorCode::kInvalidArgument;
  if (error == "fail")
    return !raised && got.error().message.starts_with("chat template, line ")
               ? ""
               : str_cat("not the language's error: ", got.error().message);
  return raised && "raise: " + got.error().message == error
             ? ""
             : str_cat("ended in \"", got.error().message, "\", want \"", error, "\"");
}

void compare_all(std::string_view name, const std::string& path) {
  const auto& names = fixture().find("templates")->as_array();
  size_t column = 0;
  while (column < names.size() && names[column].as_string() != name) ++column;
  ASSERT_LT(column, names.size()) << name << " is not in the fixture";
  const auto parsed = ChatTemplate::parse(read_file(path).value());
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  const auto& rows = fixture().find("conversations")->as_array();
  ASSERT_GE(rows.size(), 3000u);
  int failures = 0;
  for (const Json& row : rows) {
    const ChatTemplateInput input = input_of(row.as_array());
    const Result<RenderedPrompt> got = parsed->render(input);
    const std::string problem = difference(got, row.as_array()[4].as_array()[column]);
    if (!problem.empty() && ++failures <= kShownFailures)
      ADD_FAILURE() << input.messages.dump() << "\ntools " << input.tools.dump() << " kwargs "
                    << input.kwargs.dump() << "\n"
                    << problem;
  }
  EXPECT_EQ(failures, 0);
}

std::string own_template(std::string_view name) {
  return source_path(str_cat("tests/golden/text/templates/", name, ".jinja"));
}

TEST(TemplateFixture, Demo) { compare_all("demo", source_path("models/demo/chat_template.jinja")); }
TEST(TemplateFixture, Dense) { compare_all("dense", own_template("dense")); }
TEST(TemplateFixture, Strict) { compare_all("strict", own_template("strict")); }
TEST(TemplateFixture, Scopes) { compare_all("scopes", own_template("scopes")); }

TEST(TemplateFixture, Public) {
  if (!std::filesystem::exists(public_template_path())) GTEST_SKIP() << "no public template";
  compare_all("public", public_template_path());
}

// Hand-made cases with whole texts.
TEST(TemplateFixture, PublicCases) {
  const std::string path = shared_path("cases/templates.json");
  if (!std::filesystem::exists(path) || !std::filesystem::exists(public_template_path()))
    GTEST_SKIP() << "no cases";
  const auto parsed = ChatTemplate::parse(read_file(public_template_path()).value());
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  const Json cases = Json::parse(read_file(path).value()).value();
  int checked = 0;
  for (const Json& item : cases.find("cases")->as_array()) {
    if (item.find("server_normalisation_needed")->as_bool()) continue;
    const auto text_of = [&](std::string_view name) {
      const Json* found = item.find(name);
      return found != nullptr ? found->as_string() : std::string();
    };
    SCOPED_TRACE(text_of("id") + " " + text_of("title"));
    ChatTemplateInput input;
    input.messages = *item.find("messages");
    if (const Json* tools = item.find("tools")) input.tools = *tools;
    input.kwargs = *item.find("chat_template_kwargs");
    input.add_generation_prompt = item.find("add_generation_prompt")->as_bool();
    const Result<RenderedPrompt> got = parsed->render(input);
    ++checked;
    if (item.find("expect_error_contains") != nullptr) {
      ASSERT_FALSE(got.has_value());
      EXPECT_EQ(got.error().code, ErrorCode::kInvalidArgument);
      EXPECT_NE(got.error().message.find(text_of("expect_error_contains")), std::string::npos);
      continue;
    }
    ASSERT_TRUE(got.has_value()) << got.error().message;
    if (item.find("expect_text") != nullptr) {
      EXPECT_EQ(got->text, text_of("expect_text"));
    }
    EXPECT_TRUE(got->text.starts_with(text_of("expect_starts_with")));
    EXPECT_TRUE(got->text.ends_with(text_of("expect_ends_with")));
    if (const Json* parts = item.find("expect_contains")) {
      for (const Json& part : parts->as_array())
        EXPECT_NE(got->text.find(part.as_string()), std::string::npos) << part.as_string();
    }
  }
  EXPECT_GE(checked, 8);
}

}  // namespace
}  // namespace pewter
