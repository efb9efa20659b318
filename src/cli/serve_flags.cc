#include "cli/serve_flags.h"

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "base/blanks.h"
#include "base/file.h"
#include "server/answer/answer_grammar.h"
#include "server/request/generation_fields.h"

namespace pewter {
namespace {

using server::Fields;

constexpr int64_t kLongestKeyFile = int64_t{1} << 20;

Result<SamplingParams> apply_override(const Json& json, SamplingParams params) {
  if (json.is_null()) return params;
  const std::string name = "--override-generation-config";
  TRY_ASSIGN(Fields fields, Fields::of(json, ""));
  if (const Status status = server::read_sampling_defaults(fields, params); !status)
    return status.error().within(name);
  for (const std::string& key : fields.unread())
    return Error{ErrorCode::kInvalidArgument, str_cat(name, ": unknown field \"", key, "\"")};
  return params;
}

// {"low": 512}
Result<std::vector<std::pair<std::string, int64_t>>> read_effort_budgets(
    const std::optional<std::string>& text) {
  const char* const flag = "--reasoning-effort-budgets";
  TRY_ASSIGN(const Json json, json_flag(flag, text));
  std::vector<std::pair<std::string, int64_t>> budgets;
  if (json.is_null()) return budgets;
  for (const auto& [effort, value] : json.as_object()) {
    const auto budget = server::integer_value(value, effort, {.least = -1, .most = INT32_MAX});
    if (!budget) return budget.error().within(flag);
    budgets.emplace_back(effort, *budget);
  }
  return budgets;
}

// vLLM's {"think_start_str": "<think>", "think_end_str": "Now I must answer.</think>"}: the last
// sentence of reasoning that is closed. The tags are the models' own and cannot be others.
Result<std::string> read_reasoning_config(const std::optional<std::string>& text) {
  const std::string flag = "--reasoning-config";
  TRY_ASSIGN(const Json json, json_flag(flag.c_str(), text));
  if (json.is_null()) return std::string();
  TRY_ASSIGN(Fields fields, Fields::of(json, ""));
  std::string start = "<think>", end = "</think>";
  // The second names are the newer ones.
  for (const char* key : {"think_start_str", "reasoning_start_str"})
    if (const Status status = fields.read(key, start); !status) return status.error().within(flag);
  for (const char* key : {"think_end_str", "reasoning_end_str"})
    if (const Status status = fields.read(key, end); !status) return status.error().within(flag);
  for (const std::string& key : fields.unread())
    return Error{ErrorCode::kInvalidArgument, str_cat(flag, ": unknown field \"", key, "\"")};
  const std::string_view tail = trimmed(end);
  if (trimmed(start) != "<think>" || !tail.ends_with("</think>"))
    return Error{ErrorCode::kInvalidArgument,
                 flag + ": reasoning begins with <think> and ends with </think> here"};
  return std::string(trimmed(tail.substr(0, tail.size() - std::string_view("</think>").size())));
}

// Values of a flag that may be repeated, or hold them all as a JSON list, which is vLLM's way.
std::vector<std::string> listed(const std::vector<std::string>& given) {
  std::vector<std::string> values;
  for (const std::string& one : given) {
    const Result<Json> json = Json::parse(one);
    if (!json || !json->is_array()) {
      values.push_back(json && json->is_string() ? json->as_string() : one);
      continue;
    }
    for (const Json& item : json->as_array())
      values.push_back(item.is_string() ? item.as_string() : item.dump());
  }
  return values;
}

bool has_generation_config(const std::string& directory) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::path(directory) / "generation_config.json",
                                 ignored);
}

bool is_one_of(const std::optional<std::string>& value,
               std::initializer_list<std::string_view> known) {
  return !value || std::find(known.begin(), known.end(), *value) != known.end();
}

}  // namespace

void ServeFlags::declare(Flags& flags) {
  flags.positional("MODEL", directory,
                   "Model directory, a .safetensors file in it, or a hub cache folder");
  flags.accepted("--model", "MODEL", [this](const std::string& value) { model.model = value; });
  flags.group("Network");
  flags.option("--host", "ADDRESS", host, "Where to listen; 0.0.0.0 is every network");
  flags.option("--port", "N", port, "Port (default 8000; 0: any that is free)");
  flags.option("--api-key", "KEY", api_keys,
               "Let in only who sends it; may be repeated (or the environment: PEWTER_API_KEY)");
  flags.option("--api-key-file", "FILE", api_key_file,
               "The same for the keys in a file, one a line");
  flags.option("--allowed-origins", "ORIGIN", origins,
               "Web pages that may ask, \"https://example.org\"; may be repeated, or a JSON list "
               "(default *)");
  flags.option("--allowed-methods", "METHOD", methods,
               "Methods that such pages may use; likewise (default: those of the path)");
  flags.option("--allowed-headers", "HEADER", headers,
               "Headers that such pages may send; likewise (default *)");
  flags.flag("--allow-credentials", allow_credentials, "Such pages may send cookies");
  flags.option("--max-body-mb", "N", max_body_mb, "Largest body of a request (default 64)");
  flags.option("--client-buffer-kb", "N", client_buffer_kb,
               "How far a client may read behind its stream before it is dropped (default 1024)");
  flags.option("--sse-ping-interval", "N", ping_seconds,
               "Seconds between comments in a stream that has nothing to say yet (default 15)");
  flags.option("--timeout", "N", timeout_seconds,
               "Seconds that a client may take over the rest of its request, or to read on "
               "(default 30 and 60)");
  flags.option("--drain-seconds", "N", drain_seconds,
               "After SIGTERM: time for running requests to end (default 30)");
  flags.option("--served-model-name", "NAME", names,
               "Name of the model in the API; may be repeated, the first is reported (default: the "
               "name of its directory)");
  model.declare_backend(flags);
  flags.group("Many requests");
  flags.option("--max-num-seqs", "N", max_sequences, "Requests that run at once (default 8)");
  flags.option("--max-num-batched-tokens", "N", chunk_rows,
               "Tokens of a prompt read in one step, a multiple of 64 (default 512)");
  flags.option("--max-queue", "N", max_waiting,
               "Requests that may wait; more are answered 429 (default 256)");
  flags.group("Chats");
  flags.option("--chat-template", "FILE", chat_template, "Use this Jinja template");
  flags.flag("--trust-request-chat-template", own_templates,
             "A request may bring its own template in chat_template");
  flags.option("--default-chat-template-kwargs", "JSON", template_kwargs,
               "Variables of the template, such as {\"enable_thinking\": false}; requests win");
  flags.option("--reasoning-parser", "NAME", reasoning_parser,
               "qwen3: reasoning apart from the answer (default); none: all is answer");
  flags.option("--reasoning-field", "NAME", reasoning_field,
               "both (default), reasoning or reasoning_content: where reasoning is sent");
  flags.option("--reasoning-budget", "N", reasoning_budget,
               "Close reasoning after N tokens; requests win (default -1: never)");
  flags.option("--reasoning-budget-message", "TEXT", reasoning_message,
               "A last sentence for reasoning that is closed, such as \"I must answer now.\"");
  flags.option("--reasoning-config", "JSON", reasoning_config,
               "The same as vLLM has it: {\"think_end_str\": \"I must answer now.</think>\"}");
  flags.option("--reasoning-effort-budgets", "JSON", effort_budgets,
               "Budgets of reasoning_effort, such as {\"low\": 512, \"medium\": 4096}");
  flags.flag("--stop-in-reasoning", stop_in_reasoning, "Stop strings count in reasoning too");
  flags.flag("--exclude-tools-when-tool-choice-none", exclude_tools,
             "With tool_choice none the prompt says nothing of tools");
  flags.flag("--strict-messages", strict_messages,
             "Leave late and repeated system messages to the template, which may refuse them");
  flags.flag("--strict-max-tokens", strict_max_tokens,
             "Refuse a max_tokens beyond the context in place of cutting it");
  flags.group("Sampling");
  flags.option("--generation-config", "NAME", generation_config,
               "auto (default): the model's generation_config.json; vllm: neutral values; or a "
               "directory with such a file");
  flags.option("--override-generation-config", "JSON", generation_override,
               "Defaults of sampling, such as {\"temperature\": 0.6}; requests win");
  flags.group("Log and configuration");
  flags.flag("--enable-log-requests", log_requests, "Also log what a request asks for");
  flags.configurable();
  declare_accepted_flags(flags, accepted);
  flags.footer(
      "Examples:\n"
      "  pewter serve models/demo\n"
      "  pewter serve MODEL --host 0.0.0.0 --api-key SECRET --max-model-len 64k\n"
      "  pewter serve --config server.yaml\n"
      "\n"
      "docs/server.md describes the endpoints. Exit code: 0 after SIGTERM or Ctrl-C, 1 when\n"
      "something failed, 2 for a wrong command line.");
}

Status ServeFlags::check() {
  if (directory) model.model = *directory;
  if (model.model.empty())
    return Error{ErrorCode::kInvalidArgument, "MODEL is missing: want the directory of a model"};
  TRY(model.check());
  TRY(check_range("--port", port, 0, 65535));
  TRY(check_range("--max-num-seqs", max_sequences, 1, 1024));
  TRY(check_range("--max-num-batched-tokens", chunk_rows, 64, 65536));
  TRY(check_range("--max-queue", max_waiting, 1, 1'000'000));
  TRY(check_range("--drain-seconds", drain_seconds, 0, 86400));
  TRY(check_range("--max-body-mb", max_body_mb, 1, 4096));
  TRY(check_range("--client-buffer-kb", client_buffer_kb, 16, 1 << 20));
  TRY(check_range("--sse-ping-interval", ping_seconds, 1, 3600));
  TRY(cors().validate());
  TRY(check_accepted_flags(accepted));
  if (chunk_rows && *chunk_rows % 64 != 0)
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("--max-num-batched-tokens: ", *chunk_rows, " is no multiple of 64")};
  if (!is_one_of(reasoning_field, {"both", "reasoning", "reasoning_content"}))
    return Error{ErrorCode::kInvalidArgument,
                 "--reasoning-field: want both, reasoning or reasoning_content"};
  if (!is_one_of(reasoning_parser, {"qwen3", "none"}))
    return Error{ErrorCode::kInvalidArgument, "--reasoning-parser: want qwen3 or none"};
  const std::string config = generation_config.value_or("auto");
  if (config != "auto" && config != "vllm" && !has_generation_config(config))
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("--generation-config: want auto, vllm, or a directory with a "
                         "generation_config.json, which \"",
                         config, "\" is not")};
  TRY(check_range("--timeout", timeout_seconds, 1, 86400));
  TRY(check_range("--reasoning-budget", reasoning_budget, -1, INT32_MAX));
  if (const auto budgets = read_effort_budgets(effort_budgets); !budgets) return budgets.error();
  if (const auto message = read_reasoning_config(reasoning_config); !message)
    return message.error();
  TRY(json_flag("--default-chat-template-kwargs", template_kwargs));
  TRY_ASSIGN(const Json override, json_flag("--override-generation-config", generation_override));
  TRY(apply_override(override, {}));
  return {};
}

ModelOptions ServeFlags::model_options() const {
  ModelOptions options = model.model_options();
  options.runner.max_sequences = max_sequences.value_or(8);
  options.runner.chunk_rows = chunk_rows.value_or(options.runner.chunk_rows);
  options.max_waiting = max_waiting.value_or(options.max_waiting);
  options.chat_template = chat_template.value_or("");
  return options;
}

server::HttpServerOptions ServeFlags::http_options() const {
  return {.host = host, .port = static_cast<int>(port.value_or(8000))};
}

server::CorsOptions ServeFlags::cors() const {
  server::CorsOptions options{
      .methods = listed(methods), .headers = listed(headers), .credentials = allow_credentials};
  if (!origins.empty()) options.origins = listed(origins);
  return options;
}

Result<std::vector<std::string>> ServeFlags::keys() const {
  std::vector<std::string> all = api_keys;
  if (!api_key_file) return all;
  TRY_ASSIGN(const std::string text, read_file(*api_key_file, kLongestKeyFile));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view key = trimmed(std::string_view(text).substr(begin, end - begin));
    if (!key.empty()) all.emplace_back(key);
    begin = end + 1;
  }
  if (all.size() == api_keys.size())
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("--api-key-file: there is no key in ", *api_key_file)};
  return all;
}

server::HttpLimits ServeFlags::http_limits() const {
  server::HttpLimits limits;
  if (max_body_mb) limits.body_bytes = *max_body_mb << 20;
  if (timeout_seconds)
    limits.head = limits.body = limits.write_stall = std::chrono::seconds(*timeout_seconds);
  if (client_buffer_kb) limits.unsent_bytes = *client_buffer_kb << 10;
  return limits;
}

Result<server::Model> ServeFlags::served(const LoadedModel& loaded) const {
  auto served = std::make_shared<server::ServedModel>();
  served->names = names;
  if (names.empty()) {
    const std::filesystem::path path =
        std::filesystem::path(loaded.directory + "/").lexically_normal().parent_path();
    served->names = {path.filename().string()};
  }
  served->tokenizer = &loaded.tokenizer;
  served->chat_template = loaded.chat_template ? &*loaded.chat_template : nullptr;
  served->engine = loaded.engine.get();
  served->stop_ids = loaded.stop_ids;
  served->grammars = server::make_grammar_compiler(loaded.tokenizer, loaded.engine->vocab_size());
  SamplingParams defaults = loaded.defaults.sampling;
  if (generation_config == "vllm") {
    defaults = {};
  } else if (generation_config && *generation_config != "auto") {
    const Result<GenerationDefaults> theirs = GenerationDefaults::load(*generation_config);
    if (!theirs) return theirs.error().within("--generation-config");
    defaults = theirs->sampling;
  }
  TRY_ASSIGN(const Json override, json_flag("--override-generation-config", generation_override));
  TRY_ASSIGN(served->schema.defaults, apply_override(override, defaults));
  served->schema.messages.strict = strict_messages;
  served->schema.own_templates = own_templates;
  served->exclude_unwanted_tools = exclude_tools;
  TRY_ASSIGN(served->default_template_kwargs,
             json_flag("--default-chat-template-kwargs", template_kwargs));
  if (reasoning_field == "reasoning")
    served->reasoning_field = server::ReasoningField::kReasoning;
  else if (reasoning_field == "reasoning_content")
    served->reasoning_field = server::ReasoningField::kReasoningContent;
  served->parse_reasoning = reasoning_parser.value_or("qwen3") != "none";
  served->reasoning.budget = reasoning_budget.value_or(-1);
  TRY_ASSIGN(const std::string configured, read_reasoning_config(reasoning_config));
  served->reasoning.message = reasoning_message.value_or(configured);
  TRY_ASSIGN(served->reasoning.effort_budgets, read_effort_budgets(effort_budgets));
  served->ping_pause = std::chrono::seconds(ping_seconds.value_or(15));
  served->stop_in_reasoning = stop_in_reasoning;
  served->strict_max_tokens = strict_max_tokens;
  served->fingerprint = "pewter-" PEWTER_VERSION;
  served->created = static_cast<int64_t>(std::time(nullptr));
  return server::Model(std::move(served));
}

}  // namespace pewter
