// Router: which handler answers a method and a path. What no route answers is an error in the form
// of the API: 404, or 405 with the methods the path has.
#pragma once

#include "server/http/cors.h"
#include "server/http/exchange.h"

namespace pewter::server {

class Router {
 public:
  explicit Router(CorsOptions cors = {}) : cors_(std::move(cors)) {}

  // A path that ends in '/' stands for everything below it. GET answers HEAD too.
  void add(std::string method, std::string path, Handler handler);
  // OPTIONS is answered here: 204, for browsers that ask before they send.
  void dispatch(const std::shared_ptr<Exchange>& exchange) const;

 private:
  struct Route {
    std::string method, path;
    Handler handler;
  };
  const CorsOptions cors_;
  std::vector<Route> routes_;
};

}  // namespace pewter::server
