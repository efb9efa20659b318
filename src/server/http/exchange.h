// One request and the way to answer it. The HTTP layer implements Exchange; endpoints see nothing
// else of a connection, and tests bring an Exchange of their own.
//
// A connection has one thread. Everything but post() is called there, an endpoint's handler
// included; a handler that has real work to do hands it to the WorkerPool and comes back with
// post().
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace pewter::server {

using Clock = std::chrono::steady_clock;

// Runs a function on a connection's thread, after what was posted before. Any thread; returns at
// once; drops the function when the server has ended. Copies outlive the connection.
using Executor = std::function<void(std::function<void()>)>;

// An answer in the making: what the connection tells it.
class Activity {
 public:
  virtual ~Activity() = default;
  // The client has gone. Called at most once, and not after the answer is complete.
  virtual void client_gone() = 0;
  // About once a second while the answer is being made.
  virtual void tick(Clock::time_point now) = 0;
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const HttpRequest& request() const = 0;  // any thread: it does not change
  virtual Executor executor() const = 0;           // any thread

  // True once nobody will read an answer. What is sent after that goes nowhere.
  virtual bool gone() const = 0;
  // Keeps the activity alive until the answer is complete or the client has gone.
  virtual void attach(std::shared_ptr<Activity> activity) = 0;

  // The whole answer.
  virtual void respond(HttpResponse response) = 0;
  // Or an answer in pieces: head.body is the first. An empty piece sends nothing.
  virtual void start_stream(HttpResponse head) = 0;
  virtual void send(std::string_view bytes) = 0;
  virtual void finish() = 0;
  // Closes the connection where the answer stands.
  virtual void abandon() = 0;

  // A remark for the log line of this request.
  virtual void note(std::string text) = 0;
};

// Called on the connection's thread.
using Handler = std::function<void(const std::shared_ptr<Exchange>&)>;

}  // namespace pewter::server
