// A request and a response as plain data: what the HTTP layer hands to an endpoint and takes back.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pewter::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

// The value of the first header with this name in any case; nullptr when there is none.
const std::string* find_header(const Headers& headers, std::string_view name);
bool equal_ignoring_case(std::string_view a, std::string_view b);

struct HttpRequest {
  std::string method;  // as sent: methods are case-sensitive
  std::string path;    // percent-decoded, without the query
  Headers headers;
  std::string body;
  std::string id;    // the client's X-Request-Id, or one made here
  std::string peer;  // "127.0.0.1:43210", for the log
  bool is_http10 = false;

  const std::string* header(std::string_view name) const { return find_header(headers, name); }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  Headers headers = {};  // beside Content-Type, Content-Length and what every response has
  std::string body = {};
};

// "Not Found". Unknown codes give "Unknown".
std::string_view reason_phrase(int status);

// Decodes %41; nullopt when a '%' is not followed by two hex digits, or the result holds a NUL or
// is not UTF-8.
std::optional<std::string> percent_decode(std::string_view text);

}  // namespace pewter::server
