// From an Error to what a client is told: status, type, param, code. Messages of this room and of
// the engine begin with the field they are about, "messages[0].content: …"; that beginning becomes
// `param`, so that a message and its field are never two things to keep in step.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "server/http/error_body.h"
#include "server/http/exchange.h"

namespace pewter::server {

// "top_p" of "top_p: 0 is outside (0, 1]"; empty when the message names no field.
std::string_view field_of(std::string_view message);

HttpResponse error_response(const Error& error, ErrorForm form = ErrorForm::kOpenAi);
// Answers with it, in the form of the request's API, and says why in the log.
void respond_error(const std::shared_ptr<Exchange>& exchange, const Error& error);
// The same as the body of an SSE event.
std::string error_event_body(const Error& error, ErrorForm form = ErrorForm::kOpenAi);

// A text of a client's in a message: quoted, cut to 64 characters, without control characters.
std::string safe_quote(std::string_view text);

Error bad_request(std::string message);  // kInvalidArgument

}  // namespace pewter::server
