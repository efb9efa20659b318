// The body of every answer that is an error, as the API that a path belongs to spells it:
//
//   OpenAI      {"error": {"message", "type", "param", "code"}}
//   Anthropic   {"type": "error", "error": {"type", "message"}}      /v1/messages and below
#pragma once

#include <string>
#include <string_view>

namespace pewter::server {

enum class ErrorForm : uint8_t { kOpenAi, kAnthropic };
ErrorForm error_form(std::string_view path);

struct ErrorText {
  int status = 500;
  std::string_view type;        // OpenAI's word; Anthropic's follows from the status
  std::string_view message;     // what is not UTF-8 in it is mended
  std::string_view param = {};  // null in the body where empty
  std::string_view code = {};   // the status stands in for it where empty
};
std::string error_body(ErrorForm form, const ErrorText& error);

// The OpenAI form.
std::string error_body(int status, std::string_view type, std::string_view message,
                       std::string_view param = {}, std::string_view code = {});

}  // namespace pewter::server
