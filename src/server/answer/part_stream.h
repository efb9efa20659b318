// PartStream: tells a growing message part by part, for APIs whose streams open and close blocks.
// It remembers how far it has told.
#pragma once

#include "server/answer/chat_message.h"

namespace pewter::server {

class PartStream {
 public:
  virtual ~PartStream() = default;

 protected:
  // Tells what has come since the last time; `ended`: nothing comes any more.
  void advance(const ChatMessage& message, bool ended, std::string& out);
  // Parts begun so far, which is the index of the next.
  size_t parts_begun() const { return part_ + (is_open_ ? 1 : 0); }

  // `index` counts parts from 0. grow's text is not empty.
  virtual void open(const ChatMessage& message, size_t index, std::string& out) = 0;
  virtual void grow(const ChatMessage& message, size_t index, std::string_view text,
                    std::string& out) = 0;
  virtual void close(const ChatMessage& message, size_t index, std::string& out) = 0;

 private:
  size_t part_ = 0;  // the one to go on with
  size_t told_ = 0;  // bytes of it
  bool is_open_ = false;
};

}  // namespace pewter::server
