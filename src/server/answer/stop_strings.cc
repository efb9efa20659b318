#include "server/answer/stop_strings.h"

#include <algorithm>

namespace pewter::server {
namespace {

// Bytes at the end of text that begin `stop` without being all of it.
size_t partial_stop(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n)
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  return 0;
}

}  // namespace

std::string StopStrings::push(std::string_view text) {
  if (found_) return {};
  if (stops_.empty()) return std::string(text);
  held_ += text;
  size_t at = std::string::npos;
  const std::string* first = nullptr;
  for (const std::string& stop : stops_) {
    const size_t place = held_.find(stop);
    const bool longer = first != nullptr && place == at && stop.size() > first->size();
    if (place == std::string::npos || (first != nullptr && place > at)) continue;
    if (place < at || longer) first = &stop;
    at = place;
  }
  if (first != nullptr) {
    found_ = *first;
    std::string out = held_.substr(0, at + (include_ ? first->size() : 0));
    held_.clear();
    return out;
  }
  size_t tail = 0;
  for (const std::string& stop : stops_) tail = std::max(tail, partial_stop(held_, stop));
  std::string out = held_.substr(0, held_.size() - tail);
  held_.erase(0, out.size());
  return out;
}

std::string StopStrings::pass(std::string_view text) {
  if (found_) return {};
  std::string out = std::move(held_);
  held_.clear();
  out += text;
  return out;
}

}  // namespace pewter::server
