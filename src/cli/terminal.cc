#include "cli/terminal.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"

namespace pewter {
namespace {

constexpr int kStuck = 3;
volatile std::sig_atomic_t interrupts = 0;
struct sigaction previous_action;

extern "C" void count_interrupt(int) {
  interrupts = interrupts + 1;
  if (interrupts >= kStuck) ::_exit(128 + SIGINT);
}

bool is_control(char32_t c) {
  if (c == '\n' || c == '\t') return false;
  return c < 0x20 || (c >= 0x7F && c < 0xA0);
}

// One read(2); 0 at the end, -1 when a signal came first.
ssize_t read_some(std::string& into) {
  std::array<char, 4096> block;
  const ssize_t got = ::read(STDIN_FILENO, block.data(), block.size());
  if (got > 0) into.append(block.data(), static_cast<size_t>(got));
  if (got < 0 && errno != EINTR) return 0;  // a closed terminal: the end as well
  return got;
}

}  // namespace

bool is_terminal(int fd) { return ::isatty(fd) == 1; }

bool wants_style(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return is_terminal(fd) && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

std::string without_controls(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Step step = utf8_next(text);
    append_utf8(out, is_control(step.code_point) ? kReplacementCharacter : step.code_point);
    text.remove_prefix(static_cast<size_t>(step.length));
  }
  return out;
}

void write_text(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) {  // someone made it non-blocking
        pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
        ::poll(&ready, 1, -1);
        continue;
      }
      return;  // nobody is reading any more
    }
    text.remove_prefix(static_cast<size_t>(put));
  }
}

InterruptCounter::InterruptCounter() {
  interrupts = 0;
  struct sigaction action{};
  action.sa_handler = &count_interrupt;  // without SA_RESTART: reading a line stops too
  sigemptyset(&action.sa_mask);
  CHECK(sigaction(SIGINT, &action, &previous_action) == 0, "sigaction");
}

InterruptCounter::~InterruptCounter() { sigaction(SIGINT, &previous_action, nullptr); }
int InterruptCounter::count() const { return interrupts; }
void InterruptCounter::reset() { interrupts = 0; }

LineReader::Outcome LineReader::read(std::string& line) {
  while (true) {
    const size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return Outcome::kLine;
    }
    if (ended_) {
      if (buffer_.empty()) return Outcome::kEnd;
      line = std::exchange(buffer_, {});
      return Outcome::kLine;
    }
    const ssize_t got = read_some(buffer_);
    if (got < 0) {
      buffer_.clear();
      return Outcome::kInterrupted;
    }
    ended_ = got == 0;
  }
}

std::string read_standard_input() {
  std::string text;
  while (read_some(text) != 0) {
  }
  return text;
}

}  // namespace pewter
