// The person's end of the program: is there one, what may be written to it, what they type, and
// their Ctrl-C.
#pragma once

#include <string>
#include <string_view>

namespace pewter {

bool is_terminal(int fd);
// A terminal that understands colours, and nobody asked for none (NO_COLOR).
bool wants_style(int fd);

// Text for a terminal: control characters other than newline and tab become U+FFFD, so that what a
// model says cannot steer it. text must be UTF-8 in whole characters.
std::string without_controls(std::string_view text);

// Writes all of text, past the C and C++ buffers; false when it cannot: nobody reads, no space.
bool write_text(int fd, std::string_view text);

// While one lives (and only one may), Ctrl-C counts instead of ending the program. The third
// without a reset() in between ends it all the same: whatever should have looked at the count is
// stuck.
class InterruptCounter {
 public:
  InterruptCounter();
  ~InterruptCounter();
  InterruptCounter(const InterruptCounter&) = delete;
  InterruptCounter& operator=(const InterruptCounter&) = delete;

  int count() const;
  void reset();
};

// Lines of standard input.
class LineReader {
 public:
  enum class Outcome { kLine, kEnd, kInterrupted };
  // Waits for a line, without its newline. kInterrupted: an InterruptCounter's Ctrl-C came
  // first (what was typed before it is dropped). The last line may lack its newline.
  Outcome read(std::string& line);

 private:
  std::string buffer_;
  bool ended_ = false;
};

// All of standard input.
std::string read_standard_input();

}  // namespace pewter
