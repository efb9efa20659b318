// pewter inspect: the facts of a model, found by inspect_report.h without reading its weights.
#include <unistd.h>

#include "cli/commands.h"
#include "cli/inspect_report.h"
#include "cli/shared_flags.h"
#include "cli/terminal.h"

namespace pewter {
namespace {

class InspectCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    model_flags_.declare_model(flags);
    model_flags_.declare_backend(flags);
    flags.group("Output");
    flags.flag("--json", json_, "Write the same facts as one JSON object");
    flags.footer("A broken checkpoint gets a list of all that is wrong with it, and exit code 1.");
  }
  Status check() override { return model_flags_.check(); }
  Result<int> run() override {
    const ModelOptions options = model_flags_.model_options();
    TRY_ASSIGN(const InspectReport report, gather_report(options));
    const bool written =
        write_text(STDOUT_FILENO,
                   json_ ? report_json(report).dump({.indent = 2}) + "\n" : report_text(report));
    if (!written) return Error{ErrorCode::kUnavailable, "standard output does not take the report"};
    return kExitOk;
  }

 private:
  ModelFlags model_flags_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_inspect_command() { return std::make_unique<InspectCommand>(); }

}  // namespace pewter
