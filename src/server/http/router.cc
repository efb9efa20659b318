#include "server/http/router.h"

#include "base/str_cat.h"
#include "server/http/error_body.h"

namespace pewter::server {
namespace {

bool matches(const std::string& route, const std::string& path) {
  if (!route.ends_with('/')) return route == path;
  return path.size() > route.size() && path.starts_with(route);
}

}  // namespace

void Router::add(std::string method, std::string path, Handler handler) {
  routes_.push_back({std::move(method), std::move(path), std::move(handler)});
}

void Router::dispatch(const std::shared_ptr<Exchange>& exchange) const {
  const HttpRequest& request = exchange->request();
  std::string_view method = request.method;
  if (method == "HEAD") method = "GET";
  std::string allowed;
  for (const Route& route : routes_) {
    if (!matches(route.path, request.path)) continue;
    if (route.method == method) return route.handler(exchange);
    allowed += str_cat(route.method, route.method == "GET" ? ", HEAD, " : ", ");
  }
  if (method == "OPTIONS") {
    allowed = allowed.empty() ? "GET, HEAD, POST, OPTIONS" : allowed + "OPTIONS";
    return exchange->respond(
        {.status = 204, .content_type = "", .headers = preflight_headers(cors_, request, allowed)});
  }
  const ErrorForm form = error_form(request.path);
  if (allowed.empty())
    return exchange->respond(
        {.status = 404,
         .body = error_body(form, {.status = 404,
                                   .type = "NotFoundError",
                                   .message = "this server has nothing at this path"})});
  const std::string message = str_cat("this path understands ", allowed, "OPTIONS");
  exchange->respond(
      {.status = 405,
       .headers = {{"Allow", allowed + "OPTIONS"}},
       .body = error_body(form, {.status = 405, .type = "BadRequestError", .message = message})});
}

}  // namespace pewter::server
