#include "server/http/wire.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <random>

#include "base/str_cat.h"

namespace pewter::server {
namespace {

constexpr size_t kLongestId = 128;

void append_header(std::string& out, std::string_view name, std::string_view value) {
  out += name;
  out += ": ";
  out += value;
  out += "\r\n";
}

}  // namespace

std::string request_id(const std::string* given) {
  const auto visible = [](char c) { return c > ' ' && c < 0x7f; };
  if (given != nullptr && !given->empty() && given->size() <= kLongestId &&
      std::ranges::all_of(*given, visible))
    return *given;
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id = "req-";
  for (uint64_t bits = random(), i = 0; i < 16; ++i, bits >>= 4)
    id += "0123456789abcdef"[bits & 15];
  return id;
}

void append_head(std::string& out, const HttpResponse& response, const HeadOptions& options) {
  out += str_cat("HTTP/1.1 ", response.status, " ", reason_phrase(response.status), "\r\n");
  if (!response.content_type.empty()) append_header(out, "Content-Type", response.content_type);
  if (options.framing == Framing::kLength)
    append_header(out, "Content-Length", str_cat(response.body.size()));
  if (options.framing == Framing::kChunked) append_header(out, "Transfer-Encoding", "chunked");
  for (const auto& [name, value] : response.headers) append_header(out, name, value);
  for (const auto& [name, value] : options.common) append_header(out, name, value);
  append_header(out, "X-Request-Id", options.id);
  if (options.close || options.keep_alive)
    append_header(out, "Connection", options.close ? "close" : "keep-alive");
  out += "\r\n";
}

void append_chunk(std::string& out, std::string_view bytes) {
  std::array<char, 16> hex;
  const auto end = std::to_chars(hex.data(), hex.data() + hex.size(), bytes.size(), 16).ptr;
  out.append(hex.data(), end);
  out += "\r\n";
  out += bytes;
  out += "\r\n";
}

void append_last_chunk(std::string& out) { out += "0\r\n\r\n"; }

}  // namespace pewter::server
