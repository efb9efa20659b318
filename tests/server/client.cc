#include "client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "base/check.h"

namespace pewter::server_test {
namespace {

constexpr int kPatienceMs = 60'000;

std::optional<std::string> header_of(const std::string& head, const std::string& name) {
  const size_t at = head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return std::nullopt;
  const size_t begin = at + name.size() + 4;
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

}  // namespace

std::vector<std::string> Answer::events() const {
  std::vector<std::string> events;
  for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const size_t end = body.find("\n\n", at);
    events.push_back(body.substr(at + 6, end - at - 6));
    at = end;
  }
  return events;
}

Client::Client(int port, int receive_buffer_bytes) {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(socket_ >= 0, "socket");
  if (receive_buffer_bytes > 0)
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(int));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0, "connect");
}

void Client::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the server has had enough; receive() tells
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

void Client::post(const std::string& path, const std::string& json, const std::string& headers) {
  send(str_cat("POST ", path, " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n",
               headers, "Content-Length: ", json.size(), "\r\n\r\n", json));
}

void Client::get(const std::string& path) {
  send(str_cat("GET ", path, " HTTP/1.1\r\nHost: test\r\n\r\n"));
}

bool Client::read_more() {
  pollfd waiting{.fd = socket_, .events = POLLIN, .revents = 0};
  if (::poll(&waiting, 1, kPatienceMs) != 1) return false;
  std::array<char, 16384> block;
  const ssize_t got = ::recv(socket_, block.data(), block.size(), 0);
  if (got <= 0) return false;
  buffer_.append(block.data(), static_cast<size_t>(got));
  return true;
}

bool Client::receive_until(std::string_view text) {
  while (buffer_.find(text) == std::string::npos)
    if (!read_more()) return false;
  return true;
}

bool Client::is_open_after(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return true;
    pollfd waiting{.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, static_cast<int>(left.count())) == 1 && !read_more()) return false;
  }
}

Answer Client::receive() {
  Answer answer;
  if (!receive_until("\r\n\r\n")) return answer;
  const size_t head_end = buffer_.find("\r\n\r\n") + 4;
  answer.head = buffer_.substr(0, head_end);
  buffer_.erase(0, head_end);
  std::from_chars(answer.head.data() + 9, answer.head.data() + 12, answer.status);
  if (const auto length = header_of(answer.head, "Content-Length")) {
    const size_t want = std::stoul(*length);
    while (buffer_.size() < want && read_more()) {
    }
    answer.complete = buffer_.size() >= want;
    answer.body = buffer_.substr(0, want);
    buffer_.erase(0, want);
  } else if (header_of(answer.head, "Transfer-Encoding")) {
    while (receive_until("\r\n")) {
      const size_t line = buffer_.find("\r\n");
      const size_t size = std::stoul(buffer_.substr(0, line), nullptr, 16);
      while (buffer_.size() < line + 2 + size + 2)
        if (!read_more()) return answer;
      answer.body += buffer_.substr(line + 2, size);
      buffer_.erase(0, line + 2 + size + 2);
      if (size == 0) {
        answer.complete = true;
        break;
      }
    }
  } else {
    while (read_more()) {
    }
    answer.body = std::exchange(buffer_, {});
    answer.complete = true;
  }
  return answer;
}

Answer post(int port, const std::string& path, const std::string& json) {
  Client client(port);
  client.post(path, json);
  return client.receive();
}

Answer get(int port, const std::string& path) {
  Client client(port);
  client.get(path);
  return client.receive();
}

}  // namespace pewter::server_test
