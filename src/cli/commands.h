// The makers of all commands, one per file of its name.
#pragma once

#include "cli/command.h"

namespace pewter {

std::unique_ptr<Command> make_inspect_command();
std::unique_ptr<Command> make_bench_command();
std::unique_ptr<Command> make_parse_command();
std::unique_ptr<Command> make_render_command();
std::unique_ptr<Command> make_run_command();
std::unique_ptr<Command> make_serve_command();

}  // namespace pewter
