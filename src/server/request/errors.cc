#include "server/request/errors.h"

#include <algorithm>

#include "base/utf8.h"

namespace pewter::server {
namespace {

constexpr size_t kLongestQuote = 64;

struct ErrorKind {
  int status;
  std::string_view type;
};

ErrorKind kind_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kCorruptData:
    case ErrorCode::kUnsupported:
      return {400, "BadRequestError"};
    case ErrorCode::kNotFound:
      return {404, "NotFoundError"};
    case ErrorCode::kResourceExhausted:
      return {429, "RateLimitError"};
    case ErrorCode::kCancelled:
    case ErrorCode::kUnavailable:
      return {503, "unavailable_error"};
    case ErrorCode::kInternal:
      return {500, "InternalServerError"};
  }
  return {500, "InternalServerError"};
}

// What programs look for, beside the status.
std::string_view code_of(const Error& error) {
  if (error.message.find("maximum context length") != std::string::npos)
    return "context_length_exceeded";
  const std::string_view field = field_of(error.message);
  if (error.code == ErrorCode::kNotFound && field == "model") return "model_not_found";
  return field == "thread" ? "thread_unsupported_request" : "";
}

}  // namespace

std::string_view field_of(std::string_view message) {
  const size_t colon = message.find(": ");
  if (colon == std::string_view::npos || colon == 0) return {};
  const std::string_view field = message.substr(0, colon);
  const bool is_path = std::ranges::all_of(field, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '[' || c == ']';
  });
  return is_path ? field : std::string_view();
}

std::string error_event_body(const Error& error, ErrorForm form) {
  const ErrorKind kind = kind_of(error.code);
  return error_body(form, {.status = kind.status,
                           .type = kind.type,
                           .message = error.message,
                           .param = field_of(error.message),
                           .code = code_of(error)});
}

HttpResponse error_response(const Error& error, ErrorForm form) {
  HttpResponse response{.status = kind_of(error.code).status,
                        .body = error_event_body(error, form)};
  if (response.status == 429 || response.status == 503)
    response.headers.emplace_back("Retry-After", "1");
  return response;
}

void respond_error(const std::shared_ptr<Exchange>& exchange, const Error& error) {
  exchange->note(error.message);
  exchange->respond(error_response(error, error_form(exchange->request().path)));
}

std::string safe_quote(std::string_view text) {
  std::string out = "\"";
  size_t characters = 0;
  while (!text.empty() && characters < kLongestQuote) {
    const Utf8Step step = utf8_next(text);
    const bool control =
        step.code_point < 0x20 || (step.code_point >= 0x7f && step.code_point < 0xa0);
    append_utf8(out, control ? kReplacementCharacter : step.code_point);
    text.remove_prefix(static_cast<size_t>(step.length));
    ++characters;
  }
  out += text.empty() ? "\"" : "…\"";
  return out;
}

Error bad_request(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

}  // namespace pewter::server
