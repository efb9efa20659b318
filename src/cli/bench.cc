// pewter bench: how fast a model decodes or reads a prompt, and how fast its ops are by themselves,
// beside what the machine allows. The measuring is in bench_run.h and bench_kernels.h.
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "cli/bench_accept.h"
#include "cli/bench_drafting.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/draft_vocabulary.h"
#include "cli/kernels_report.h"
#include "cli/profile_report.h"
#include "cli/shared_flags.h"
#include "cli/terminal.h"

namespace pewter {
namespace {

constexpr int64_t kDecodeTokens = 64, kPromptTokens = 512, kDraftingTokens = 256;
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
    flags.positional("WHAT", what_, "decode, prefill, drafting, kernels or accept");
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
    flags.token_count(
        "--tokens", tokens_,
        "Steps to decode (default 64), length of the prompt (default 512) or, of accept, "
        "of an answer (default 96)");
    flags.option("--depth", "N", depth_,
                 "Positions before them (default 0; of kernels 1024 and 32768)");
    flags.option("--rows", "N", rows_,
                 "Rows a sequence has in a decode step (default 1; of kernels 1, 2, 4, 8, 16)");
    flags.option("--sequences", "N", sequences_, "Sequences decoded together (default 1)");
    flags.option("--repeat", "N", repeats_, "Timed repeats (default 5)");
    flags.flag("--profile", profile_,
               "Decode: run the stages of a step by themselves as well and show their times");
    flags.option("--only", "TEXT", only_, "Kernels: ops whose names contain it, such as experts");
    flags.group("Drafting (decode, drafting)");
    flags.option("--forced-tokens-per-step", "A", forced_tokens_,
                 "Of --rows, so many count on average, as if the others had been wrong guesses");
    flags.option("--speculate", "NAME", speculate_,
                 "Make a guess for every row but the first: mtp, suffix, or dflash, which is "
                 "--draft-model's or, of a --shape, its known drafter's shape");
    flags.option("--draft-tokens", "N", draft_tokens_, "The same as --rows N + 1");
    flags.option("--draft-format", "NAME", draft_format_,
                 "Of a --shape, the matrices of the MTP layer or the drafter: bf16 (default), fp8 "
                 "or int4");
    flags.option("--draft-head-rows", "N|FILE", draft_head_rows_,
                 "Of a --shape, and of accept, choose guesses among so many tokens, of accept also "
                 "among a file's ids, with a head in int8 of its own (default: all, with "
                 "--lm-head)");
    flags.option("--routing", "NAME", routing_,
                 "Of a --shape, experts of a step's rows: uniform, as if each chose for itself "
                 "(default), or overlapped, top_k x rows^0.74 distinct ones, as in text");
    flags.option("--acceptance", "P", acceptance_,
                 "Drafting: how often a guess is right when those before it are (default 0)");
    flags.group("Drafting (accept)");
    flags.option("--prompts", "FILE", prompts_,
                 "JSON, or a line each: family, and prompt_ids, messages or prompt");
    flags.option("--methods", "LIST", methods_,
                 "plain, suffix, mtp, dflash and auto, or of a fixed depth, such as mtp:3 (default "
                 "plain,suffix,mtp,auto)");
    flags.option("--draft-model", "DIR", draft_model_, "Directory of the DFlash drafter");
    flags.option("--temperature", "T", temperature_,
                 "0, the likeliest token, by default; high ones make guesses wrong");
    flags.option("--svg", "FILE", svg_, "Write a chart of the tokens a step");
    flags.group("Output");
    flags.flag("--json", json_, "Write the result as one JSON object");
    flags.flag("--csv", csv_, "Write the table of --profile or kernels as CSV");
    flags.footer(
        "The best of the repeats counts. Bytes and operations are those the model needs, whatever\n"
        "the kernels do; the ceiling is measured in between, in the same process: on the CPU by as "
        "many threads. kernels runs ops by themselves, at the sizes of models.");
  }

  Status check() override {
    if (what_ != "decode" && what_ != "prefill" && what_ != "kernels" && what_ != "accept" &&
        what_ != "drafting")
      return invalid("\"" + what_ + "\" is none of decode, prefill, drafting, kernels, accept");
    if (csv_ && json_) return invalid("--csv and --json exclude each other");
    TRY(check_ranges());
    if (what_ == "accept") return check_accept();
    if (prompts_ || methods_ || svg_ || temperature_)
      return invalid("--prompts, --methods, --temperature and --svg belong to accept");
    if (acceptance_ && what_ != "drafting") return invalid("--acceptance belongs to drafting");
    if (what_ != "decode" && what_ != "drafting" &&
        (forced_tokens_ || speculate_ || draft_model_ || draft_tokens_ || draft_format_ ||
         draft_head_rows_ || routing_))
      return invalid(
          "the flags of drafting belong to decode, --draft-model and --draft-head-rows to accept "
          "as well");
    if (what_ == "kernels") return check_kernels();
    if (only_) return invalid("--only belongs to kernels");
    TRY(check_drafting());
    if (what_ == "drafting") TRY(check_by_cost());
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
    TRY_ASSIGN(const std::string report, what_ == "kernels"    ? run_kernels(hooks)
                                         : what_ == "accept"   ? run_accept(hooks)
                                         : what_ == "drafting" ? run_drafting(hooks)
                                                               : run_model(hooks));
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

  Status check_drafting() {
    TRY(check_range("--draft-tokens", draft_tokens_, 1, kMaxDrafts));
    if (draft_tokens_ && rows_) return invalid("--draft-tokens and --rows say the same");
    if (draft_tokens_) rows_ = *draft_tokens_ + 1;
    const auto rows = static_cast<float>(rows_.value_or(1));
    if (forced_tokens_ && !(*forced_tokens_ >= 1 && *forced_tokens_ <= rows))
      return invalid(
          str_cat("--forced-tokens-per-step: ", *forced_tokens_, " is outside [1, --rows]"));
    TRY(check_routing());
    if (!speculate_)
      return draft_model_ || draft_format_ || draft_head_rows_
                 ? invalid("--draft-model, --draft-format and --draft-head-rows need --speculate")
                 : Status();
    const Result<DraftMethod> method = draft_method(*speculate_);
    if (!method) return method.error().within("--speculate");
    drafts_ = *method;
    if (drafts_ == DraftMethod::kNone || drafts_ == DraftMethod::kAuto)
      return invalid("--speculate: want mtp, dflash or suffix");
    if (rows <= 1) return invalid("--speculate: needs --rows above 1: a token and its guesses");
    if (model_ && (drafts_ == DraftMethod::kDflash) != draft_model_.has_value())
      return invalid("--draft-model and --speculate dflash belong together");
    if (shape_ && draft_model_) return invalid("--draft-model belongs to a MODEL");
    if (model_ && (draft_format_ || draft_head_rows_))
      return invalid("--draft-format and --draft-head-rows belong to --shape");
    if (drafts_ == DraftMethod::kSuffix && (draft_format_ || draft_head_rows_))
      return invalid("--draft-format and --draft-head-rows: suffix has no weights");
    TRY(check_draft_vocabulary());
    if (!draft_vocabulary_.file.empty())
      return invalid("--draft-head-rows: a --shape has no tokens of a file, want a number");
    return {};
  }
  Status check_draft_vocabulary() {
    if (!draft_head_rows_) return {};
    Result<DraftVocabulary> parsed = parse_draft_vocabulary(*draft_head_rows_);
    if (!parsed) return parsed.error().within("--draft-head-rows");
    draft_vocabulary_ = *std::move(parsed);
    return {};
  }
  Status check_by_cost() const {
    if (!speculate_) return invalid("drafting needs --speculate");
    if (forced_tokens_ || routing_ || profile_ || depth_)
      return invalid("--forced-tokens-per-step, --routing, --profile and --depth belong to decode");
    if (acceptance_ && !(*acceptance_ >= 0 && *acceptance_ <= 1))
      return invalid(str_cat("--acceptance: ", *acceptance_, " is outside [0, 1]"));
    return {};
  }
  Status check_routing() const {
    if (!routing_) return {};
    if (*routing_ != "uniform" && *routing_ != "overlapped")
      return invalid("--routing: want uniform or overlapped");
    if (model_) return invalid("--routing belongs to --shape: a MODEL's router chooses itself");
    if (*routing_ == "overlapped" && (rows_.value_or(1) == 1 || sequences_.value_or(1) > 1))
      return invalid("--routing overlapped: is of the --rows above 1 of one sequence");
    return {};
  }
  Status check_accept() {
    if (!model_ || shape_) return invalid("accept takes a MODEL");
    if (!prompts_) return invalid("accept needs --prompts");
    if (format_ || unique_layers_ || depth_ || rows_ || profile_ || only_ || json_ || speculate_ ||
        forced_tokens_ || draft_tokens_ || draft_format_ || routing_)
      return invalid(
          "of --tokens, --sequences, --repeat, --csv and the flags of drafting accept knows what "
          "to "
          "do, and not of the others");
    if (lm_head_ != "int8" && lm_head_ != "bf16") return invalid("--lm-head: want int8 or bf16");
    TRY(check_draft_vocabulary());
    if (!(temperature_.value_or(0) >= 0)) return invalid("--temperature: is below 0");
    TRY_ASSIGN(accept_methods_, parse_accept_methods(methods_.value_or("plain,suffix,mtp,auto")));
    const bool dflash = std::ranges::any_of(accept_methods_, [](const AcceptMethod& method) {
      return method.draft.method == DraftMethod::kDflash;
    });
    if (dflash && !draft_model_) return invalid("--methods: dflash needs --draft-model");
    return {};
  }

  Result<std::string> run_accept(const BenchHooks& hooks) {
    AcceptOptions options{.prompts = prompts_.value_or(""),
                          .methods = accept_methods_,
                          .temperature = temperature_.value_or(0)};
    options.model = backend_.model_options();
    options.model.model = model_.value_or("");
    options.model.lm_head = lm_head_ == "int8" ? LmHead::kInt8 : LmHead::kAsStored;
    options.model.drafter = draft_model_.value_or("");
    options.model.every_drafter = true;
    options.model.draft_vocabulary = draft_vocabulary_;
    // Memory is planned for the longest drafts there are.
    options.model.draft = {.method = DraftMethod::kAuto, .tokens = kMaxDrafts};
    options.sequences = sequences_.value_or(1);
    options.model.runner.max_sequences = options.sequences;
    options.max_tokens = tokens_.value_or(options.max_tokens);
    options.repeats = repeats_.value_or(options.repeats);
    TRY_ASSIGN(const AcceptResult result, run_accept_bench(options, hooks));
    if (svg_ && !(std::ofstream(*svg_) << accept_svg(result)).flush())
      return Error{ErrorCode::kUnavailable, str_cat("--svg: cannot write ", *svg_)};
    return csv_ ? accept_csv(result) : accept_text(result);
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

  BenchOptions bench_options(BenchKind kind, int64_t tokens) const {
    return {
        .kind = kind,
        .model = model_.value_or(""),
        .shape = shape_.value_or(""),
        .format = format_.value_or("bf16"),
        .lm_head = lm_head_,
        .backend = backend_.model_options().backend,
        .tokens = tokens_.value_or(tokens),
        .depth = depth_.value_or(0),
        .rows = rows_.value_or(1),
        .sequences = sequences_.value_or(1),
        .forced_tokens = forced_tokens_.value_or(0),
        .drafts = drafts_,
        .drafter = draft_model_.value_or(""),
        .draft_format = draft_format_.value_or("bf16"),
        .draft_head_rows = draft_vocabulary_.rows,
        .routing = routing_.value_or("") == "overlapped" ? Routing::kOverlapped : Routing::kUniform,
        .repeats = repeats_.value_or(5),
        .unique_layers = unique_layers_.value_or(0),
        .profile = profile_};
  }

  Result<std::string> run_model(const BenchHooks& hooks) const {
    const bool decodes = what_ == "decode";
    const BenchOptions options = decodes ? bench_options(BenchKind::kDecode, kDecodeTokens)
                                         : bench_options(BenchKind::kPrefill, kPromptTokens);
    TRY_ASSIGN(const BenchResult result, run_bench(options, hooks));
    if (csv_) return profile_csv(result);
    return json_ ? bench_json(result).dump({.indent = 2}) + "\n" : bench_text(result);
  }

  Result<std::string> run_drafting(const BenchHooks& hooks) const {
    const DraftingOptions options{.bench = bench_options(BenchKind::kDecode, kDraftingTokens),
                                  .acceptance = acceptance_.value_or(0)};
    TRY_ASSIGN(const DraftingResult result, run_drafting_bench(options, hooks));
    return json_ ? drafting_json(result).dump({.indent = 2}) + "\n" : drafting_text(result);
  }

  std::string what_;
  std::optional<std::string> model_, shape_, format_, only_;
  std::string lm_head_ = kDefaultLmHead;
  ModelFlags backend_;
  std::vector<AcceptMethod> accept_methods_;
  std::optional<std::string> prompts_, methods_, draft_model_, svg_;
  std::optional<std::string> speculate_, draft_format_, routing_, draft_head_rows_;
  DraftVocabulary draft_vocabulary_;
  std::optional<int64_t> draft_tokens_;
  DraftMethod drafts_ = DraftMethod::kNone;
  std::optional<float> temperature_, forced_tokens_, acceptance_;
  std::optional<int64_t> unique_layers_, tokens_, depth_, rows_, sequences_, repeats_;
  bool profile_ = false, json_ = false, csv_ = false;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace pewter
