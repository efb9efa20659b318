#include "server/http/error_body.h"

#include "base/json.h"
#include "base/str_cat.h"
#include "base/utf8.h"

namespace pewter::server {
namespace {

constexpr std::string_view kMessagesPath = "/v1/messages";

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

void append_openai(std::string& body, const ErrorText& error) {
  body += "{\"error\":{\"message\":";
  append_json_string(body, replace_invalid_utf8(error.message));
  body += ",\"type\":";
  append_json_string(body, error.type);
  body += ",\"param\":";
  if (error.param.empty())
    body += "null";
  else
    append_json_string(body, replace_invalid_utf8(error.param));
  body += ",\"code\":";
  if (error.code.empty())
    append_piece(body, error.status);
  else
    append_json_string(body, error.code);
  body += "}}";
}

void append_anthropic(std::string& body, const ErrorText& error) {
  body += "{\"type\":\"error\",\"error\":{\"type\":";
  append_json_string(body, anthropic_type(error.status));
  body += ",\"message\":";
  // Agents that are to shorten their history look for these words.
  const bool too_long = error.code == "context_length_exceeded";
  append_json_string(
      body, replace_invalid_utf8(str_cat(too_long ? "prompt is too long: " : "", error.message)));
  body += "}}";
}

}  // namespace

ErrorForm error_form(std::string_view path) {
  const bool below = path.starts_with(kMessagesPath) &&
                     (path.size() == kMessagesPath.size() || path[kMessagesPath.size()] == '/');
  return below ? ErrorForm::kAnthropic : ErrorForm::kOpenAi;
}

std::string error_body(ErrorForm form, const ErrorText& error) {
  std::string body;
  form == ErrorForm::kAnthropic ? append_anthropic(body, error) : append_openai(body, error);
  return body;
}

std::string error_body(int status, std::string_view type, std::string_view message,
                       std::string_view param, std::string_view code) {
  return error_body(
      ErrorForm::kOpenAi,
      {.status = status, .type = type, .message = message, .param = param, .code = code});
}

}  // namespace pewter::server
