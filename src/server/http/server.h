// HttpServer: listens, and runs connections on a few threads. Each connection belongs to one
// thread, so nothing in it needs a lock. This header and its like are plain; Boost's Asio and Beast
// stand in connection.cc, server.cc and session.cc only, which take long to compile.
#pragma once

#include <memory>

#include "base/result.h"
#include "server/http/session.h"

namespace pewter::server {

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // an address or a name
  int port = 8000;                 // 0: any that is free
  int threads = 2;
  int64_t most_connections = 4096;  // more are closed as they come
  int send_buffer_bytes = 0;        // of the kernel, per connection; 0: as it likes
};

class HttpServer {
 public:
  // Listens when it returns. service.draining and service.busy are the server's own: leave them
  // empty. Errors: kUnavailable when the port is taken, kInvalidArgument for a host that is none.
  static Result<std::unique_ptr<HttpServer>> start(const HttpServerOptions& options,
                                                   HttpService service);
  // Closes everything: who still waits for an answer is told that nobody listens any more.
  ~HttpServer();

  int port() const;
  std::string address() const;  // "http://127.0.0.1:8000"

  // Stops listening; connections end when they have no request in work.
  void drain();
  // Waits until no request is being served, or not longer than this. True when none is.
  bool wait_idle(std::chrono::milliseconds longest);
  int64_t busy() const;
  int64_t connections() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pewter::server
