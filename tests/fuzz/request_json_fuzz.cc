// Bodies of requests: whatever a client sends becomes a request or an error, and an error is valid
// UTF-8 that fits into an answer. The first byte chooses the endpoint.
#include "base/check.h"
#include "base/utf8.h"
#include "server/anthropic/messages_request.h"
#include "server/openai/schema.h"
#include "server/request/errors.h"
#include "server/responses/responses_request.h"

using namespace pewter;
using namespace pewter::server;

namespace {

template <typename T>
void look_at(const Result<T>& result) {
  if (result) return;
  const HttpResponse response = error_response(result.error());
  CHECK(response.status == 400, "a client's mistake answered ", response.status);
  CHECK(is_valid_utf8(response.body), "an answer that is not UTF-8");
  CHECK(Json::parse(response.body), "an answer that is not JSON");
}

// What a template gets must be what templates expect.
void check_chat(const ChatInput& chat) {
  for (const Json& message : chat.messages.as_array()) {
    CHECK(message.find("role")->is_string() && message.find("content")->is_string(), "a message");
    if (const Json* calls = message.find("tool_calls"))
      for (const Json& call : calls->as_array())
        CHECK(call.find("function")->find("arguments")->is_object(), "arguments");
  }
  (void)chat.messages.dump();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const SchemaOptions options{.messages = {.strict = (data[0] & 8) != 0}};
  switch (data[0] & 7) {
    case 0: {
      const Result<ChatRequest> request = parse_chat_request(body, options);
      look_at(request);
      if (request) check_chat(request->chat);
      break;
    }
    case 1:
      look_at(parse_completion_request(body, options));
      break;
    case 2: {
      const Result<TokenizeRequest> request = parse_tokenize_request(body, options);
      look_at(request);
      if (request && request->chat) check_chat(*request->chat);
      break;
    }
    case 4: {
      const Result<ChatRequest> request = parse_messages_request(body, {.schema = options});
      look_at(request);
      if (request) check_chat(request->chat);
      break;
    }
    case 5: {
      const Result<ResponsesRequest> request = parse_responses_request(body, options);
      look_at(request);
      if (!request) break;
      check_chat(request->chat.chat);
      CHECK(Json::parse(request->echo.dump()), "an echo that is not JSON");
      break;
    }
    default:
      look_at(parse_detokenize_request(body));
  }
  return 0;
}
