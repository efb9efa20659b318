// HttpSession: HTTP/1.1 on one connection without any socket: bytes in, bytes out. The transport
// (connection.cc, or a test) feeds receive(), writes what output() holds, and asks wants_input()
// and finished() after each call; `changed` tells it when an answer came from elsewhere.
//
// Requests are served one at a time, in order; what a client sends ahead waits here, up to a bound.
// Keep-alive, chunked bodies, Expect: 100-continue, HEAD, and every limit live in this file; it
// answers 400, 408, 413, 417, 431 and 505 itself, in the error form of the API.
#pragma once

#include <cstdint>

#include "server/http/exchange.h"

namespace pewter::server {

struct HttpLimits {
  int64_t body_bytes = int64_t{64} << 20;
  int64_t header_bytes = int64_t{32} << 10;
  int64_t ahead_bytes = int64_t{64} << 10;  // pipelined input that waits; then reading stops
  int64_t unsent_bytes = int64_t{1} << 20;  // of a stream, beyond what the kernel takes
  std::chrono::seconds idle{75};            // between requests
  std::chrono::seconds head{30};            // from a request's first byte to its last header
  std::chrono::seconds body{30};            // without a byte of the body
  std::chrono::seconds write_stall{60};     // without the client taking a byte
};

// What a finished request was, for the log and for counting.
struct ServedRequest {
  const HttpRequest& request;
  int status = 0;        // 0: the client went before there was one
  bool aborted = false;  // the answer is not complete
  double seconds = 0;
  const std::string& note;
};

// What all connections of a server share. Functions may be called by several threads at once.
struct HttpService {
  Handler handler;
  HttpLimits limits = {};
  Headers headers = {};                                         // of every response
  std::function<Headers(const HttpRequest&)> headers_for = {};  // and of a request's; may be empty
  std::function<void(const ServedRequest&)> served = {};        // may be empty
  std::function<void(int change)> busy = {};                    // +1, -1: requests being served
  std::function<bool()> draining = {};                          // true: no keep-alive any more
};

class HttpSession {
 public:
  // `changed`: there may be output, or an end, that no call of the transport's asked for; called on
  // the connection's thread. The service outlives the session.
  static std::shared_ptr<HttpSession> make(const HttpService& service, std::string peer,
                                           Executor executor, std::function<void()> changed);
  virtual ~HttpSession() = default;

  virtual void receive(std::string_view bytes) = 0;
  virtual void receive_end() = 0;  // the client sends no more
  virtual void abort() = 0;        // the transport is gone: nothing can be written any more
  virtual void tick(Clock::time_point now) = 0;  // time limits

  virtual bool wants_input() const = 0;
  virtual std::string& output() = 0;             // the transport takes it away
  virtual void set_in_flight(size_t bytes) = 0;  // taken from output(), not yet with the kernel
  // No more output will come. The transport writes what there is and closes: at once if lingers()
  // is false; otherwise it ends its side and throws away input for a moment, so that a client that
  // is still sending reads the answer instead of a reset.
  virtual bool finished() const = 0;
  virtual bool lingers() const = 0;
  // No answer is wanted any more, not even what is in output(): close at once.
  virtual bool broken() const = 0;
};

}  // namespace pewter::server
