#include "cli/terminal.h"

#include <fcntl.h>
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
// The handler writes a byte for whoever waits for input: the signal may come just before the wait,
// or to another thread.
std::array<int, 2> wake_pipe = {-1, -1};

extern "C" void count_interrupt(int) {
  const int saved = errno;
  interrupts = interrupts + 1;
  [[maybe_unused]] const ssize_t put = ::write(wake_pipe[1], "!", 1);
  errno = saved;
  if (interrupts >= kStuck) ::_exit(128 + SIGINT);
}

bool is_control(char32_t c) {
  if (c == '\n' || c == '\t') return false;
  return c < 0x20 || (c >= 0x7F && c < 0xA0);
}

// The bytes of the handler; false when there were none.
bool drain_wake_pipe() {
  std::array<char, 64> block;
  return wake_pipe[0] >= 0 && ::read(wake_pipe[0], block.data(), block.size()) > 0;
}

// Waits for one read(2); 0 at the end, -1 when a Ctrl-C came first.
ssize_t read_some(std::string& into) {
  std::array<pollfd, 2> ready = {
      pollfd{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
      pollfd{.fd = wake_pipe[0], .events = POLLIN, .revents = 0}};  // -1 is passed over
  while (::poll(ready.data(), ready.size(), -1) < 0 && errno == EINTR) {
  }
  if (drain_wake_pipe()) return -1;
  std::array<char, 4096> block;
  ssize_t got = 0;
  do got = ::read(STDIN_FILENO, block.data(), block.size());
  while (got < 0 && errno == EINTR);
  if (got <= 0) return 0;  // an error, as of a terminal that is gone, is an end too
  into.append(block.data(), static_cast<size_t>(got));
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

bool write_text(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) {  // someone made it non-blocking
        pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
        ::poll(&ready, 1, -1);
        continue;
      }
      return false;
    }
    text.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

InterruptCounter::InterruptCounter() {
  CHECK(wake_pipe[0] < 0, "two interrupt counters");
  CHECK(::pipe2(wake_pipe.data(), O_CLOEXEC | O_NONBLOCK) == 0, "pipe");
  interrupts = 0;
  struct sigaction action{};
  action.sa_handler = &count_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  CHECK(sigaction(SIGINT, &action, &previous_action) == 0, "sigaction");
}

InterruptCounter::~InterruptCounter() {
  sigaction(SIGINT, &previous_action, nullptr);
  for (int& end : wake_pipe) ::close(std::exchange(end, -1));
}
int InterruptCounter::count() const { return interrupts; }
void InterruptCounter::reset() {
  interrupts = 0;
  drain_wake_pipe();
}

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
