// Flags of vLLM and llama-server that scripts bring along and that mean nothing here, or mean what
// is done anyway. They are accepted, so that such a script starts, and said to be ignored.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace pewter {

struct GivenFlag {
  std::string name, value;
};

// Declares them all; those that are given are added to `given`. They do not stand in the help.
void declare_accepted_flags(Flags& flags, std::vector<GivenFlag>& given);
// Error: kInvalidArgument, for a value that would mean something other than what is done.
Status check_accepted_flags(const std::vector<GivenFlag>& given);
// A line for the log about each.
std::vector<std::string> accepted_notes(const std::vector<GivenFlag>& given);

}  // namespace pewter
