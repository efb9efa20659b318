// A client for tests: blocking sockets, so that it can also do what no good client does.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace pewter::server_test {

struct Answer {
  int status = 0;  // 0: the connection ended before there was one
  std::string head, body;
  bool complete = false;  // the body came to its end

  Json json() const { return Json::parse(body).value(); }
  // Texts of "data:" lines.
  std::vector<std::string> events() const;
};

class Client {
 public:
  // receive_buffer_bytes: of the kernel; 0: as it likes. A failure to connect is a CHECK.
  explicit Client(int port, int receive_buffer_bytes = 0);
  ~Client() { close(); }
  Client(Client&& other) noexcept : socket_(other.socket_), buffer_(std::move(other.buffer_)) {
    other.socket_ = -1;
  }
  Client& operator=(Client&&) = delete;

  void send(std::string_view bytes);
  void post(const std::string& path, const std::string& json, const std::string& headers = "");
  void get(const std::string& path);
  // Reads an answer to its end, or to the connection's.
  Answer receive();
  // Reads until the text has come; false when the connection ends first.
  bool receive_until(std::string_view text);
  // False once the server has closed.
  bool is_open_after(std::chrono::milliseconds time);
  void close();

 private:
  bool read_more();

  int socket_ = -1;
  std::string buffer_;
};

Answer post(int port, const std::string& path, const std::string& json);
Answer get(int port, const std::string& path);

}  // namespace pewter::server_test
