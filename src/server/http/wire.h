// Bytes of answers: heads and chunks, and the ids requests go by.
#pragma once

#include <span>

#include "server/http/message.h"

namespace pewter::server {

// The client's id if it is short and visible ASCII, since it goes back into a header and into the
// log; a new one otherwise.
std::string request_id(const std::string* given);

enum class Framing : uint8_t {
  kLength,   // Content-Length of response.body
  kChunked,  // pieces with their sizes
  kToEnd,    // everything until the connection's end, for HTTP/1.0
  kNone,     // no body at all
};

struct HeadOptions {
  Framing framing = Framing::kLength;
  std::span<const std::pair<std::string, std::string>> common = {};  // headers of every response
  std::string_view id;
  bool close = false, keep_alive = false;  // say so; neither: HTTP/1.1 needs no word for staying
};
// Everything up to the empty line.
void append_head(std::string& out, const HttpResponse& response, const HeadOptions& options);
void append_chunk(std::string& out, std::string_view bytes);  // not empty: that would be the end
void append_last_chunk(std::string& out);

}  // namespace pewter::server
