// Server-sent events: how a streamed answer is cut into pieces on the wire.
#pragma once

#include <string>
#include <string_view>

namespace pewter::server {

// "data: JSON" and an empty line. The text must hold no line break; JSON of this server never does.
void append_sse_event(std::string& out, std::string_view json);
// The same behind "event: NAME".
void append_sse_event(std::string& out, std::string_view name, std::string_view json);
void append_sse_done(std::string& out);  // data: [DONE]
void append_sse_ping(std::string& out);  // a comment: says that the server is still at work

}  // namespace pewter::server
