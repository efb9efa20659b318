// Cross-origin requests: what browsers are told about who may ask.
#pragma once

#include "base/result.h"
#include "server/http/message.h"

namespace pewter::server {

struct CorsOptions {
  std::vector<std::string> origins = {"*"};
  // Of preflights; empty: the methods of the path, and any header.
  std::vector<std::string> methods = {}, headers = {};
  bool credentials = false;  // cookies and the like may be sent

  // Error: kInvalidArgument: credentials for every origin are an invitation.
  Status validate() const;
  // Any origin: every answer says so, and the same.
  bool is_open() const;
};

// Headers of an answer to this request, beside those that all answers have.
Headers cors_headers(const CorsOptions& options, const HttpRequest& request);
// And of the answer to a preflight. `allowed`: the path's methods, "GET, POST".
Headers preflight_headers(const CorsOptions& options, const HttpRequest& request,
                          const std::string& allowed);

}  // namespace pewter::server
