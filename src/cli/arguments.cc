// The command line, read with CLI11. This is the only file that includes it: it takes seconds to
// compile.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "base/file.h"
#include "cli/argument_sources.h"
#include "cli/command.h"

namespace pewter {
namespace {

constexpr size_t kHelpColumn = 34;

template <typename T>
std::optional<T> parse_number(const std::string& text) {
  T number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end) return std::nullopt;
  return number;
}

// 32k and 1m count in powers of two, as context lengths do. Empty when text is no such number.
std::optional<int64_t> parse_token_count(const std::string& text) {
  std::string digits = text;
  int64_t unit = 1;
  if (digits.ends_with('k') || digits.ends_with('K')) unit = int64_t{1} << 10;
  if (digits.ends_with('m') || digits.ends_with('M')) unit = int64_t{1} << 20;
  if (unit > 1) digits.pop_back();
  const std::optional<int64_t> number = parse_number<int64_t>(digits);
  if (!number || *number <= 0 || *number > (int64_t{1} << 40)) return std::nullopt;
  return *number * unit;
}

class CliFlags final : public Flags {
 public:
  explicit CliFlags(CLI::App& app) : app_(app) {}

  void group(const std::string& title) override { group_ = title; }
  void positional(const std::string& name, std::string& into, const std::string& help) override {
    app_.add_option(name, into, help)->required()->option_text(" ");
  }
  void positional(const std::string& name, std::optional<std::string>& into,
                  const std::string& help) override {
    value<std::string>(name, " ", help, into);
  }
  void flag(const std::string& name, bool& into, const std::string& help) override {
    app_.add_flag_callback(name, [&into] { into = true; }, help)->group(group_);
  }
  void toggle(const std::string& name, std::optional<bool>& into,
              const std::string& help) override {
    app_.add_flag_function(
            name, [&into](int64_t count) { into = count > 0; }, help)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->group(group_);
  }
  void option(const std::string& name, const std::string& what, std::string& into,
              const std::string& help) override {
    finish(app_.add_option(name, into, str_cat(help, " (default ", into, ")")), what);
  }
  void option(const std::string& name, const std::string& what, std::optional<std::string>& into,
              const std::string& help) override {
    value<std::string>(name, what, help, into);
  }
  void option(const std::string& name, const std::string& what, std::optional<float>& into,
              const std::string& help) override {
    value<float>(name, what, help, into);
  }
  void option(const std::string& name, const std::string& what, std::optional<int64_t>& into,
              const std::string& help) override {
    value<int64_t>(name, what, help, into);
  }
  void option(const std::string& name, const std::string& what, std::optional<uint64_t>& into,
              const std::string& help) override {
    // CLI11 would take -1 for 2^64 - 1.
    const auto read = [name, &into](const std::string& text) {
      into = parse_number<uint64_t>(text);
      if (!into)
        throw CLI::ValidationError(name, "\"" + text + "\" is no integer from 0 to 2^64 - 1");
    };
    finish(app_.add_option_function<std::string>(name, read, help), what);
  }
  void option(const std::string& name, const std::string& what, std::vector<std::string>& into,
              const std::string& help) override {
    app_.add_option_function<std::vector<std::string>>(
            name,
            [&into](const std::vector<std::string>& given) {
              into.insert(into.end(), given.begin(), given.end());
            },
            help)
        ->option_text(what)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group(group_);
  }
  void token_count(const std::string& name, std::optional<int64_t>& into,
                   const std::string& help) override {
    const auto read = [name, &into](const std::string& text) {
      into = parse_token_count(text);
      if (!into)
        throw CLI::ValidationError(name, "\"" + text + "\" is no number of tokens (4096, 32k)");
    };
    finish(app_.add_option_function<std::string>(name, read, help), "N");
  }
  void token_count_or_auto(const std::string& name, std::optional<int64_t>& into,
                           const std::string& help) override {
    const auto read = [name, &into](const std::string& text) {
      into = text == "auto" ? kAuto : parse_token_count(text);
      if (!into)
        throw CLI::ValidationError(
            name, "\"" + text + "\" is neither a number of tokens (4096, 32k) nor auto");
    };
    finish(app_.add_option_function<std::string>(name, read, help), "N");
  }
  void accepted(const std::string& name, const std::string& what,
                std::function<void(const std::string& value)> given) override {
    if (what.empty())
      app_.add_flag_callback(name, [given = std::move(given)] { given(""); })->group("");
    else
      app_.add_option_function<std::string>(name, std::move(given))
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
          ->group("");
  }
  void configurable() override {
    is_configurable_ = true;
    option("--config", "FILE", config_,
           "Read flags from a YAML file, such as \"port: 8001\"; the command line and variables "
           "like PEWTER_PORT win");
  }
  void footer(const std::string& text) override { app_.footer("\n" + text); }

  // The arguments with those of the file and the environment behind them. Errors: the file's.
  Result<Arguments> complete(Arguments arguments) const;

 private:
  template <typename T>
  void value(const std::string& name, const std::string& what, const std::string& help,
             std::optional<T>& into) {
    finish(
        app_.add_option_function<T>(name, [&into](const T& parsed) { into = parsed; }, help), what);
  }
  void finish(CLI::Option* option, const std::string& what) {
    option->option_text(what)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if (option->nonpositional()) option->group(group_);
  }

  CLI::App& app_;
  std::string group_ = "Options";
  bool is_configurable_ = false;
  std::optional<std::string> config_;  // complete() has read it before the parser sees it
};

// The longest configuration anybody writes, and more.
constexpr int64_t kConfigLimit = int64_t{1} << 20;

Result<Arguments> CliFlags::complete(Arguments arguments) const {
  if (!is_configurable_) return arguments;
  // Names that are no option of one letter and no long one either: the parser has no word for them.
  for (std::string& argument : arguments)
    for (const auto& [name, meant] : {std::pair("-tp", "--tensor-parallel-size"),
                                      {"-pp", "--pipeline-parallel-size"},
                                      {"-ngl", "--n-gpu-layers"},
                                      {"-fa", "--flash-attn"}})
      if (argument == name) argument = meant;
  Arguments known;
  for (const CLI::Option* option : std::as_const(app_).get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  arguments = with_defaults(std::move(arguments), environment_arguments(known, &::getenv));
  const std::string path = value_of("--config", arguments);
  if (path.empty()) return arguments;
  TRY_ASSIGN(const std::string text, read_file(path, kConfigLimit));
  const Result<Arguments> lower = config_arguments(text, known);
  if (!lower) return lower.error().within(path);
  return with_defaults(std::move(arguments), *lower);
}

// CLI11's help without its gaps of two lines, and without "{false}" behind a flag that negates.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    for (size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
    return text;
  }
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, positional);
    if (const size_t at = name.find("{false}"); at != std::string::npos) name.erase(at, 7);
    for (size_t at = 0; (at = name.find(',', at)) != std::string::npos; at += 2)
      name.insert(at + 1, 1, ' ');
    return name;
  }
};

// After the other flags: --help is listed last.
void add_help(CLI::App& app) {
  app.set_help_flag();
  app.set_help_flag("-h,--help", "Show this help and exit")->group("Help");
}

// CLI11 names what is left over in a sentence that wraps; ours is the same for all.
std::string message_of(const CLI::ParseError& error) {
  std::string text = error.what();
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    const size_t colon = text.find(": ");
    if (colon != std::string::npos) text = "not understood: " + text.substr(colon + 2);
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

int usage_error(const std::string& program, const std::string& message) {
  std::fprintf(stderr, "%s: %s\nTry '%s --help'.\n", program.c_str(), message.c_str(),
               program.c_str());
  return kExitUsage;
}

int run_one(const CommandEntry& entry, Command& command) {
  const std::string program = str_cat("pewter ", entry.name);
  if (const Status status = command.check(); !status)
    return usage_error(program, status.error().message);
  const Result<int> code = command.run();
  if (code) return *code;
  std::fprintf(stderr, "%s: %s\n", program.c_str(), code.error().message.c_str());
  return kExitFailed;
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  CLI::App app("Pewter runs Qwen3.5 language models.", "pewter");
  const auto formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(kHelpColumn);
  formatter->label("Positionals", "Arguments");
  formatter->label("OPTIONS", "options");
  formatter->label("SUBCOMMAND", "COMMAND");
  app.formatter(formatter);  // commands inherit it
  add_help(app);
  app.set_version_flag("--version", "pewter " PEWTER_VERSION, "Show the version and exit")
      ->group("Help");
  app.require_subcommand(0, 1);
  app.footer("\n'pewter COMMAND --help' shows what a command understands.");

  std::vector<std::unique_ptr<Command>> instances;
  std::vector<CLI::App*> parsers;
  std::vector<std::unique_ptr<CliFlags>> flags;
  for (const CommandEntry& entry : commands()) {
    instances.push_back(entry.make());
    parsers.push_back(app.add_subcommand(entry.name, entry.summary)->group("Commands"));
    instances.back()->declare(*flags.emplace_back(std::make_unique<CliFlags>(*parsers.back())));
    add_help(*parsers.back());
  }

  Arguments arguments(argv + std::min(argc, 1), argv + argc);
  for (size_t i = 0; i < parsers.size() && !arguments.empty(); ++i) {
    if (arguments.front() != parsers[i]->get_name()) continue;
    Result<Arguments> complete = flags[i]->complete(std::move(arguments));
    if (!complete) return usage_error("pewter " + parsers[i]->get_name(), complete.error().message);
    arguments = *std::move(complete);
    break;
  }
  std::reverse(arguments.begin(), arguments.end());  // as the parser wants them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForVersion& version) {
    std::printf("%s\n", version.what());
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
    std::string program = "pewter";
    for (const CLI::App* parser : parsers)
      if (parser->parsed()) program += " " + parser->get_name();
    return usage_error(program, message_of(error));
  }
  for (size_t i = 0; i < parsers.size(); ++i)
    if (parsers[i]->parsed()) return run_one(commands()[i], *instances[i]);
  std::fputs(app.help().c_str(), stderr);
  return kExitUsage;
}

}  // namespace pewter
