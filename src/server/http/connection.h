// A connection: a socket around an HttpSession. Only the Asio files of this folder include it.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "server/http/session.h"

namespace pewter::server {

// A thread and its connections.
struct Lane;

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, const HttpService& service)
      : socket_(std::move(socket)), service_(service) {}

  // Everything on the lane's thread.
  void start(std::string peer, Executor executor);
  void tick(Clock::time_point now);
  // Ends it now.
  void close();
  bool closed() const { return closed_; }

 private:
  // Does what the session wants by now.
  void step();
  void read();
  void write();
  void end();

  boost::asio::ip::tcp::socket socket_;
  const HttpService& service_;
  std::shared_ptr<HttpSession> session_;
  std::array<char, 16384> block_;
  std::string writing_;  // in flight
  size_t written_ = 0;   // of it
  Clock::time_point last_write_, end_;
  bool is_reading_ = false, is_writing_ = false, shut_ = false, closed_ = false;
};

}  // namespace pewter::server
