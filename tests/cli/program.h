// Runs the built program as a person would: with pipes, or on a terminal of its own.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace pewter::cli_test {

struct ProgramResult {
  int exit_code = -1;  // 128 + the signal when one ended it
  std::string out, err;
};

// `pewter ARGUMENTS` with input on its standard input.
ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& input = "");

// `pewter ARGUMENTS` on a new terminal.
class TerminalProgram {
 public:
  // output: where standard output goes instead, if anywhere.
  explicit TerminalProgram(const std::vector<std::string>& arguments,
                           const std::string& output = "");
  ~TerminalProgram();  // kills it if it still runs
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;

  void type(const std::string& keys);
  // Waits until text shows up behind what earlier waits have found; false after a minute.
  bool wait_for(const std::string& text);
  // Waits for the end; -1 after a minute.
  int exit_code();
  const std::string& screen() const { return screen_; }

 private:
  // Reads what there is within a while; false at the end of the program.
  bool read_more();

  pid_t pid_ = -1;
  int terminal_ = -1;
  std::string screen_;
  size_t seen_ = 0;
};

// The bundled model.
std::string demo_model();

// A copy of it, made of links, in which single files can be replaced. Removed with the object.
class DemoCopy {
 public:
  DemoCopy();
  ~DemoCopy();
  DemoCopy(const DemoCopy&) = delete;
  DemoCopy& operator=(const DemoCopy&) = delete;

  std::string path() const { return directory_.string(); }
  void replace(const std::string& name, const std::string& content);
  void remove(const std::string& name);

 private:
  std::filesystem::path directory_;
};

}  // namespace pewter::cli_test
