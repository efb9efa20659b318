// The description holds what the parsers read, and the router has what it describes.
#include "server/openapi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "server/anthropic/messages_request.h"
#include "server/endpoint_table.h"
#include "server/openai/schema.h"
#include "server/responses/responses_request.h"

namespace pewter::server {
namespace {

using testing::IsEmpty;
using Names = std::set<std::string>;

Names documented(const std::string& schema) {
  const Json schemas = openapi_schemas();
  Names names;
  for (const auto& [name, property] : schemas.find(schema)->find("properties")->as_object())
    names.insert(name);
  return names;
}

// What is in one set and not in the other.
Names beyond(const Names& some, const Names& others) {
  Names rest;
  for (const std::string& name : some)
    if (!others.contains(name)) rest.insert(name);
  return rest;
}

TEST(OpenApi, DescribesWhatTheParsersRead) {
  std::vector<std::string> read;
  SchemaOptions options;
  options.read_names = &read;
  const std::string messages = R"("messages":[{"role":"user","content":"hi"}])";
  const auto check = [&](const std::string& schema, const auto& result) {
    ASSERT_TRUE(result) << result.error().message;
    const Names names(read.begin(), read.end());
    EXPECT_THAT(beyond(names, documented(schema)), IsEmpty()) << "not described in " << schema;
    EXPECT_THAT(beyond(documented(schema), names), IsEmpty())
        << "described but not read: " << schema;
  };
  check("ChatRequest", parse_chat_request("{" + messages + "}", options));
  check("CompletionRequest", parse_completion_request(R"({"prompt":"a"})", options));
  check("ResponsesRequest", parse_responses_request(R"({"input":"a"})", options));
  check("MessagesRequest", parse_messages_request("{" + messages + "}", {.schema = options}));
}

TEST(OpenApi, DescribesBothWaysToTokenize) {
  std::vector<std::string> read;
  SchemaOptions options;
  options.read_names = &read;
  Names names;
  for (const char* body :
       {R"({"prompt":"a"})", R"({"messages":[{"role":"user","content":"hi"}]})"}) {
    ASSERT_TRUE(parse_tokenize_request(body, options));
    names.insert(read.begin(), read.end());
  }
  EXPECT_EQ(names, documented("TokenizeRequest"));
}

// Every $ref of a document has a target.
void check_references(const Json& json, const Json& schemas) {
  if (json.is_array())
    for (const Json& item : json.as_array()) check_references(item, schemas);
  if (!json.is_object()) return;
  for (const auto& [key, value] : json.as_object()) {
    check_references(value, schemas);
    if (key != "$ref") continue;
    const std::string prefix = "#/components/schemas/";
    ASSERT_TRUE(value.as_string().starts_with(prefix));
    EXPECT_NE(schemas.find(value.as_string().substr(prefix.size())), nullptr) << value.as_string();
  }
}

TEST(OpenApi, RefersToWhatIsThere) {
  const Json document = openapi_document("1.2.3");
  check_references(document, *document.find("components")->find("schemas"));
  EXPECT_EQ(document.find("info")->find("version")->as_string(), "1.2.3");
  for (const EndpointEntry& entry : endpoint_table())
    EXPECT_NE(document.find("paths")->find(entry.path), nullptr) << entry.path;
}

}  // namespace
}  // namespace pewter::server
