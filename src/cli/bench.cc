// pewter bench: how fast a model decodes or reads a prompt, and how fast its ops are by themselves,
// beside what the machine allows. The measuring is in bench_run.h and bench_kernels.h.
#include <unistd.h>

#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/kernels_report.h"
#include "cli/profile_report.h"
#include "cli/shared_flags.h"
#include "cli/terminal.h"

namespace pewter {
namespace {

constexpr int64_t kDecodeTokens = 64, kPromptTokens = 512;
constexpr int64_t kMostTokens = int64_t{1} << 20, kMostSequences = 1024, kMostRepeats = 1000;

// One line on a terminal that is written over and over.
class ProgressLine {
 public:
  ProgressLine() : shown_(is_terminal(STDERR_FILENO)) {}
  ~ProgressLine() { clear(); }
  void show(const std::string& text) const {
    if (shown_) write_text(STDERR_FILENO, "\r\x1b[K" + text);
  }
  void clear() const {
    if (shown_) write_text(STDERR_FILENO, "\r\x1b[K");
  }

 private:
  bool shown_;
};

class BenchCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.positional("WHAT", what_, "decode, prefill or kernels");
    flags.positional("MODEL", model_, "Model directory; or --shape for random weights");
    flags.group("Model");
    flags.option(
        "--shape", "NAME", shape_,
        "third or qwen3.5-0.8b, -27b, -35b, -122b, with random weights (default of kernels: "
        "-122b, -35b and -27b)");
    flags.option("--format", "NAME", format_,
                 "bf16, fp8, int4 or hybrid (int4 with shared experts in fp8; default bf16); of "
                 "kernels: products in bf16, fp8, int4 or int8 alone");
    flags.option("--lm-head,--head", "NAME", lm_head_,
                 "The output head: int8, bf16; of a --shape fp8 or int4 as well");
    flags.option("--unique-layers", "N", unique_layers_,
                 "Make N layers and repeat them: for shapes that do not fit");
    flags.group("Backend");
    flags.option("--device", "NAME", backend_.device, "auto, cuda, cpu or cpu-reference");
    flags.option("--threads", "N", backend_.threads,
                 "CPU threads (default: all that are free to use)");
    flags.group("Work");
    flags.token_count("--tokens", tokens_,
                      "Steps to decode (default 64), or length of the prompt (default 512)");
    flags.option("--depth", "N", depth_,
                 "Positions before them (default 0; of kernels 1024 and 32768)");
    flags.option("--rows", "N", rows_,
                 "Rows a sequence has in a decode step (default 1; of kernels 1, 2, 4, 8, 16)");
    flags.option("--sequences", "N", sequences_, "Sequences decoded together (default 1)");
    flags.option("--repeat", "N", repeats_, "Timed repeats (default 5)");
    flags.flag("--profile", profile_,
               "Decode: run the stages of a step by themselves as well and show their times");
    flags.option("--only", "TEXT", only_, "Kernels: ops whose names contain it, such as experts");
    flags.group("Output");
    flags.flag("--json", json_, "Write the result as one JSON object");
    flags.flag("--csv", csv_, "Write the table of --profile or kernels as CSV");
    flags.footer(
        "The best of the repeats counts. Bytes and operations are those the model needs, whatever\n"
        "the kernels do; the ceiling is measured in between, in the same process: on the CPU by as "
        "many threads. kernels runs ops by themselves, at the sizes of models.");
  }

  Status check() override {
    if (what_ != "decode" && what_ != "prefill" && what_ != "kernels")
      return invalid("\"" + what_ + "\" is none of decode, prefill, kernels");
    if (csv_ && json_) return invalid("--csv and --json exclude each other");
    TRY(check_ranges());
    if (what_ == "kernels") return check_kernels();
    if (only_) return invalid("--only belongs to kernels");
    if (model_.has_value() == shape_.has_value())
      return invalid(model_ ? "MODEL and --shape exclude each other"
                            : "neither a MODEL nor a --shape to run");
    if (model_ && (format_ || unique_layers_))
      return invalid("--format and --unique-layers belong to --shape");
    if (model_ && lm_head_ != "int8" && lm_head_ != "bf16")
      return invalid("--lm-head: of a MODEL want int8 or bf16");
    if (what_ == "prefill" && (rows_.value_or(1) != 1 || sequences_.value_or(1) != 1))
      return invalid("--rows and --sequences belong to decode");
    if (what_ == "prefill" && profile_) return invalid("--profile belongs to decode");
    if (csv_ && !profile_) return invalid("--csv belongs to --profile and to kernels");
    return {};
  }

  Result<int> run() override {
    const ProgressLine line;
    const BenchHooks hooks{.progress = [&](const std::string& text) { line.show(text); }};
    TRY_ASSIGN(const std::string report,
               what_ == "kernels" ? run_kernels(hooks) : run_model(hooks));
    line.clear();
    if (!write_text(STDOUT_FILENO, report))
      return Error{ErrorCode::kUnavailable, "standard output does not take the report"};
    return kExitOk;
  }

 private:
  static Error invalid(std::string message) {
    return Error{ErrorCode::kInvalidArgument, std::move(message)};
  }

  Status check_ranges() const {
    TRY(backend_.check());
    TRY(check_range("--tokens", tokens_, 1, kMostTokens));
    TRY(check_range("--depth", depth_, 0, kMostTokens));
    TRY(check_range("--rows", rows_, 1, kMaxDecodeRows));
    TRY(check_range("--sequences", sequences_, 1, kMostSequences));
    TRY(check_range("--repeat", repeats_, 1, kMostRepeats));
    return check_range("--unique-layers", unique_layers_, 1, kMostTokens);
  }
  Status check_kernels() const {
    if (model_) return invalid("a MODEL belongs to decode and prefill");
    if (unique_layers_ || tokens_ || sequences_ || repeats_ || profile_)
      return invalid(
          "--unique-layers, --tokens, --sequences, --repeat and --profile belong to decode and "
          "prefill");
    return {};
  }

  Result<std::string> run_kernels(const BenchHooks& hooks) const {
    KernelOptions options{.backend = backend_.model_options().backend,
                          .only = only_.value_or(""),
                          .format = format_.value_or("")};
    if (shape_) options.shapes = {*shape_};
    if (rows_) options.rows = {*rows_};
    if (depth_) options.depths = {*depth_};
    TRY_ASSIGN(const KernelResult result, run_kernel_bench(options, hooks));
    if (csv_) return kernels_csv(result);
    return json_ ? kernels_json(result).dump({.indent = 2}) + "\n" : kernels_text(result);
  }

  Result<std::string> run_model(const BenchHooks& hooks) const {
    const bool decodes = what_ == "decode";
    const BenchOptions options{.kind = decodes ? BenchKind::kDecode : BenchKind::kPrefill,
                               .model = model_.value_or(""),
                               .shape = shape_.value_or(""),
                               .format = format_.value_or("bf16"),
                               .lm_head = lm_head_,
                               .backend = backend_.model_options().backend,
                               .tokens = tokens_.value_or(decodes ? kDecodeTokens : kPromptTokens),
                               .depth = depth_.value_or(0),
                               .rows = rows_.value_or(1),
                               .sequences = sequences_.value_or(1),
                               .repeats = repeats_.value_or(5),
                               .unique_layers = unique_layers_.value_or(0),
                               .profile = profile_};
    TRY_ASSIGN(const BenchResult result, run_bench(options, hooks));
    if (csv_) return profile_csv(result);
    return json_ ? bench_json(result).dump({.indent = 2}) + "\n" : bench_text(result);
  }

  std::string what_;
  std::optional<std::string> model_, shape_, format_, only_;
  std::string lm_head_ = kDefaultLmHead;
  ModelFlags backend_;
  std::optional<int64_t> unique_layers_, tokens_, depth_, rows_, sequences_, repeats_;
  bool profile_ = false, json_ = false, csv_ = false;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace pewter
