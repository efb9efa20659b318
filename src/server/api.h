// Api: the table of endpoints around a model that may still be loading. It checks keys and content
// types, carries work to the WorkerPool and outcomes back, and says what state the server is in.
#pragma once

#include <mutex>

#include "server/endpoints.h"
#include "server/http/router.h"
#include "server/worker_pool.h"

namespace pewter::server {

struct ApiOptions {
  std::vector<std::string> api_keys;  // none: everyone is let in
  std::string version = "0";
  int worker_threads = 2;
  bool log_requests = false;
  CorsOptions cors = {};
};

class Api {
 public:
  explicit Api(ApiOptions options);

  // Any thread. Before it, and after failed() and drain(), work is refused with 503.
  void serve(Model model);
  void failed(std::string why);
  void drain();
  // Waits for work that has begun; nothing is begun any more.
  void stop() { workers_.stop(); }

  // A connection's thread.
  void handle(const std::shared_ptr<Exchange>& exchange);

 private:
  struct State {
    Model model;          // null while loading
    std::string problem;  // why there is none, or none any more
  };
  void add(std::string method, std::string path, Endpoint endpoint);
  void run(const std::shared_ptr<Exchange>& exchange, Endpoint endpoint);
  bool has_key(const HttpRequest& request) const;
  State state() const;

  const ApiOptions options_;
  Router router_;
  mutable std::mutex mutex_;
  State state_;  // guarded by mutex_
  WorkerPool workers_;
};

}  // namespace pewter::server
