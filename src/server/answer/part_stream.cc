#include "server/answer/part_stream.h"

namespace pewter::server {

void PartStream::advance(const ChatMessage& message, bool ended, std::string& out) {
  while (part_ < message.parts.size()) {
    if (!is_open_) open(message, part_, out);
    is_open_ = true;
    const std::string_view text = message.text_of(message.parts[part_]);
    if (told_ < text.size()) grow(message, part_, text.substr(told_), out);
    told_ = text.size();
    if (!ended && part_ + 1 == message.parts.size()) return;
    close(message, part_, out);
    is_open_ = false;
    told_ = 0;
    ++part_;
  }
}

}  // namespace pewter::server
