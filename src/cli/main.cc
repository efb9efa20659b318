// pewter: see commands.cc for what it can do, arguments.cc for how a command line is read.
#include "cli/command.h"

int main(int argc, char** argv) { return pewter::run_command_line(argc, argv); }
