// A command of the program: what flags it has, and what it does. One file per command, and one line
// in commands.cc. Flags are declared through the Flags interface, so that the heavy library behind
// it is included in arguments.cc alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace pewter {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;         // the world failed: one message on standard error
inline constexpr int kExitUsage = 2;          // the command line is wrong
inline constexpr int kExitInterrupted = 130;  // Ctrl-C, as shells count it

// Every target outlives the parse. An optional stays empty, a bool as it was, without its flag; the
// last of a repeated flag counts.
class Flags {
 public:
  virtual ~Flags() = default;
  // Flags declared after this are listed under the title.
  virtual void group(const std::string& title) = 0;
  virtual void positional(const std::string& name, std::string& into, const std::string& help) = 0;
  virtual void positional(const std::string& name, std::optional<std::string>& into,
                          const std::string& help) = 0;  // may be left out
  virtual void flag(const std::string& name, bool& into, const std::string& help) = 0;
  // "--x,!--no-x": sets true or false.
  virtual void toggle(const std::string& name, std::optional<bool>& into,
                      const std::string& help) = 0;
  // `what` names the value in the help: "N", "FILE".
  virtual void option(const std::string& name, const std::string& what, std::string& into,
                      const std::string& help) = 0;
  virtual void option(const std::string& name, const std::string& what,
                      std::optional<std::string>& into, const std::string& help) = 0;
  virtual void option(const std::string& name, const std::string& what, std::optional<float>& into,
                      const std::string& help) = 0;
  virtual void option(const std::string& name, const std::string& what,
                      std::optional<int64_t>& into, const std::string& help) = 0;
  virtual void option(const std::string& name, const std::string& what,
                      std::optional<uint64_t>& into, const std::string& help) = 0;
  // May be given several times, and is added each time.
  virtual void option(const std::string& name, const std::string& what,
                      std::vector<std::string>& into, const std::string& help) = 0;
  // A number of tokens: 4096, or 32k = 32 · 1024.
  virtual void token_count(const std::string& name, std::optional<int64_t>& into,
                           const std::string& help) = 0;
  // The same, or "auto", which is kAuto.
  static constexpr int64_t kAuto = -1;
  virtual void token_count_or_auto(const std::string& name, std::optional<int64_t>& into,
                                   const std::string& help) = 0;
  // A flag taken for other programs' sake, which the help leaves out. `what`: as above; "" for a
  // flag without a value, which is then "".
  virtual void accepted(const std::string& name, const std::string& what,
                        std::function<void(const std::string& value)> given) = 0;
  // The command's flags may also stand in a file, --config FILE, and in the environment
  // (argument_sources.h).
  virtual void configurable() = 0;
  // Text below the list of flags in --help.
  virtual void footer(const std::string& text) = 0;
};

class Command {
 public:
  virtual ~Command() = default;
  virtual void declare(Flags& flags) = 0;
  // What flags alone can have wrong; an error here is a usage error.
  virtual Status check() { return {}; }
  // The exit code. An error is printed by the caller, and the exit code is kExitFailed.
  virtual Result<int> run() = 0;
};

struct CommandEntry {
  const char* name;
  const char* summary;
  std::unique_ptr<Command> (*make)();
};

// In the order --help shows them.
std::span<const CommandEntry> commands();

// Parses the command line and runs the command it names; returns the exit code.
int run_command_line(int argc, const char* const* argv);

}  // namespace pewter
