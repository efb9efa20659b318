#include "server/sse.h"

#include "base/check.h"

namespace pewter::server {

void append_sse_event(std::string& out, std::string_view json) {
  DCHECK(json.find_first_of("\r\n") == std::string_view::npos, "an event has a line break");
  out += "data: ";
  out += json;
  out += "\n\n";
}

void append_sse_event(std::string& out, std::string_view name, std::string_view json) {
  out += "event: ";
  out += name;
  out += '\n';
  append_sse_event(out, json);
}

void append_sse_done(std::string& out) { out += "data: [DONE]\n\n"; }

void append_sse_ping(std::string& out) { out += ": ping\n\n"; }

}  // namespace pewter::server
