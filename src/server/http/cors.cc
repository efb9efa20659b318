#include "server/http/cors.h"

#include <algorithm>

namespace pewter::server {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

}  // namespace

bool CorsOptions::is_open() const { return has(origins, "*"); }

Status CorsOptions::validate() const {
  if (credentials && is_open())
    return Error{ErrorCode::kInvalidArgument,
                 "--allow-credentials: needs --allowed-origins that name who is meant, not *"};
  return {};
}

Headers cors_headers(const CorsOptions& options, const HttpRequest& request) {
  if (options.is_open()) return {{"Access-Control-Allow-Origin", "*"}};
  Headers headers = {{"Vary", "Origin"}};
  const std::string* origin = request.header("Origin");
  if (origin == nullptr || !has(options.origins, *origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", *origin);
  if (options.credentials) headers.emplace_back("Access-Control-Allow-Credentials", "true");
  return headers;
}

Headers preflight_headers(const CorsOptions& options, const HttpRequest& request,
                          const std::string& allowed) {
  const bool any_method = options.methods.empty() || has(options.methods, "*");
  const bool any_header = options.headers.empty() || has(options.headers, "*");
  // "*" leaves out Authorization, and means nothing where there are credentials.
  const std::string* wanted = request.header("Access-Control-Request-Headers");
  const std::string every = wanted != nullptr ? *wanted : "*, Authorization";
  return {{"Allow", allowed},
          {"Access-Control-Allow-Methods", any_method ? allowed : joined(options.methods)},
          {"Access-Control-Allow-Headers", any_header ? every : joined(options.headers)},
          {"Access-Control-Max-Age", "86400"}};
}

}  // namespace pewter::server
