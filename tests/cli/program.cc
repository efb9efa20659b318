#include "program.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/check.h"

namespace pewter::cli_test {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

[[noreturn]] void become_program(const std::vector<std::string>& arguments) {
  std::vector<char*> argv = {const_cast<char*>("pewter")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execv(PEWTER_PROGRAM, argv.data());
  ::_exit(127);
}

int exit_code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    std::array<int, 2> ends;
    CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0, "pipe");
    read_end = ends[0];
    write_end = ends[1];
  }
};

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> block;
  for (ssize_t got; (got = ::read(fd, block.data(), block.size())) > 0;)
    text.append(block.data(), static_cast<size_t>(got));
  ::close(fd);
  return text;
}

}  // namespace

ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& input) {
  ::signal(SIGPIPE, SIG_IGN);  // the program may leave its input unread
  const Pipe in, out, err;
  const pid_t pid = ::fork();
  CHECK(pid >= 0, "fork");
  if (pid == 0) {
    ::dup2(in.read_end, STDIN_FILENO);
    ::dup2(out.write_end, STDOUT_FILENO);
    ::dup2(err.write_end, STDERR_FILENO);
    ::signal(SIGPIPE, SIG_DFL);
    become_program(arguments);
  }
  ::close(in.read_end);
  ::close(out.write_end);
  ::close(err.write_end);
  ProgramResult result;
  std::thread errors([&] { result.err = read_all(err.read_end); });
  std::thread feeder([&] {
    size_t done = 0;
    while (done < input.size()) {
      const ssize_t put = ::write(in.write_end, input.data() + done, input.size() - done);
      if (put <= 0) break;
      done += static_cast<size_t>(put);
    }
    ::close(in.write_end);
  });
  result.out = read_all(out.read_end);
  errors.join();
  feeder.join();
  int status = 0;
  ::waitpid(pid, &status, 0);
  result.exit_code = exit_code_of(status);
  return result;
}

TerminalProgram::TerminalProgram(const std::vector<std::string>& arguments,
                                 const std::string& output) {
  pid_ = ::forkpty(&terminal_, nullptr, nullptr, nullptr);
  CHECK(pid_ >= 0, "forkpty");
  if (pid_ == 0) {
    ::setenv("TERM", "xterm", 1);
    ::unsetenv("NO_COLOR");
    if (!output.empty()) ::dup2(::open(output.c_str(), O_WRONLY), STDOUT_FILENO);
    become_program(arguments);
  }
}

TerminalProgram::~TerminalProgram() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(terminal_);
}

void TerminalProgram::type(const std::string& keys) {
  CHECK(::write(terminal_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()), "write");
}

bool TerminalProgram::read_more() {
  pollfd ready{.fd = terminal_, .events = POLLIN, .revents = 0};
  if (::poll(&ready, 1, /*milliseconds=*/200) <= 0) return true;
  std::array<char, 4096> block;
  const ssize_t got = ::read(terminal_, block.data(), block.size());
  if (got <= 0) return false;  // EIO: nobody has the terminal open any more
  screen_.append(block.data(), static_cast<size_t>(got));
  return true;
}

bool TerminalProgram::wait_for(const std::string& text) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    const size_t at = screen_.find(text, seen_);
    if (at != std::string::npos) {
      seen_ = at + text.size();
      return true;
    }
    if (std::chrono::steady_clock::now() > end || !read_more()) return false;
  }
}

int TerminalProgram::exit_code() {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end && read_more()) {
  }
  int status = 0;
  while (std::chrono::steady_clock::now() < end) {
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return exit_code_of(status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return -1;
}

std::string demo_model() { return std::string(PEWTER_SOURCE_DIR) + "/models/demo"; }

DemoCopy::DemoCopy() {
  std::string pattern = (std::filesystem::temp_directory_path() / "pewter-cli-XXXXXX").string();
  CHECK(::mkdtemp(pattern.data()) != nullptr, "mkdtemp ", pattern);
  directory_ = pattern;
  for (const auto& entry : std::filesystem::directory_iterator(demo_model()))
    std::filesystem::create_symlink(entry.path(), directory_ / entry.path().filename());
}

DemoCopy::~DemoCopy() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void DemoCopy::replace(const std::string& name, const std::string& content) {
  remove(name);
  std::ofstream(directory_ / name, std::ios::binary) << content;
}

void DemoCopy::remove(const std::string& name) { std::filesystem::remove(directory_ / name); }

}  // namespace pewter::cli_test
