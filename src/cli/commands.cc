#include "cli/commands.h"

#include <array>

namespace pewter {

std::span<const CommandEntry> commands() {
  static constexpr std::array kCommands = {
      CommandEntry{"run", "Answer a prompt, or chat when there is none", &make_run_command},
      CommandEntry{"serve", "Answer requests over HTTP, in the form of the OpenAI API",
                   &make_serve_command},
      CommandEntry{"inspect", "Say what a model is made of and what it needs, without loading it",
                   &make_inspect_command},
      CommandEntry{"bench", "Measure how fast a model runs, beside what the machine allows",
                   &make_bench_command},
      CommandEntry{"render", "Show the prompt that a chat request becomes, and its tokens",
                   &make_render_command},
      CommandEntry{"parse", "Make a message of a model's raw output, as the chat API would",
                   &make_parse_command},
  };
  return kCommands;
}

}  // namespace pewter
