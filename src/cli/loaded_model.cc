#include "cli/loaded_model.h"

#include <algorithm>

#include "base/file.h"

namespace pewter {
namespace {

constexpr int64_t kTemplateLimit = int64_t{4} << 20;
// Of the memory that is left after the weights, what caches may take when nobody said how long the
// context shall be. The rest is for activations and for the machine.
constexpr double kCacheShare = 0.8;

// The file that was asked for, chat_template.jinja, or else the template inside
// tokenizer_config.json.
Result<std::optional<ChatTemplate>> load_template(const std::string& directory,
                                                  const TokenizerConfig& config,
                                                  const std::string& instead) {
  if (!instead.empty()) {
    TRY_ASSIGN(const std::string source, read_file(instead, kTemplateLimit));
    Result<ChatTemplate> parsed = ChatTemplate::parse(source);
    if (!parsed) return parsed.error().within(instead);
    return std::optional<ChatTemplate>(std::move(*parsed));
  }
  constexpr std::string_view kName = "chat_template.jinja";
  const Result<std::string> file = read_file(str_cat(directory, "/", kName), kTemplateLimit);
  if (!file && file.error().code != ErrorCode::kNotFound) return file.error();
  std::string source = file ? *file : std::string();
  if (!file) {
    const auto named = std::ranges::find(config.chat_templates, "default", &NamedTemplate::name);
    if (named == config.chat_templates.end()) return std::optional<ChatTemplate>();
    source = named->source;
  }
  Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  if (!parsed) return parsed.error().within(file ? kName : "tokenizer_config.json: chat_template");
  return std::optional<ChatTemplate>(std::move(*parsed));
}

// Bits of the ids that have a token; empty when all ids below the limit have one.
std::vector<uint32_t> mask_of(const Tokenizer& tokenizer, int64_t limit, int64_t vocab_size) {
  std::vector<uint32_t> mask(static_cast<size_t>((vocab_size + 31) / 32));
  bool complete = true;
  for (int64_t id = 0; id < limit; ++id) {
    if (tokenizer.has(static_cast<int32_t>(id)))
      mask[static_cast<size_t>(id / 32)] |= uint32_t{1} << (id % 32);
    else
      complete = false;
  }
  if (complete) mask.clear();
  return mask;
}

// Context, cache and sequences, as asked for or as memory allows.
Result<EngineOptions> engine_options(const ModelOptions& options, const LoadedModel& loaded) {
  const ModelConfig& config = loaded.model.config;
  EngineOptions engine{.runner = options.runner, .max_waiting = options.max_waiting};
  engine.vocab_limit = std::min<int64_t>(loaded.tokenizer.vocab_size(), config.vocab_size);
  engine.token_mask = mask_of(loaded.tokenizer, engine.vocab_limit, config.vocab_size);

  RunnerOptions& runner = engine.runner;
  const int64_t available = loaded.backend.device->available_bytes();
  const auto plan = [&](int64_t tokens) {
    RunnerOptions sized = runner;
    sized.cache_tokens = tokens;
    return ModelRunner::plan(loaded.model, *loaded.backend.device, *loaded.backend.ops, sized);
  };
  const auto bytes = [&](int64_t tokens) {
    return plan(tokens).kv_bytes + plan(tokens).state_bytes;
  };
  // States come before caches: a sequence without one cannot run at all.
  while (runner.max_sequences > 1 && plan(kPageTokens).state_bytes > available / 2)
    runner.max_sequences /= 2;

  int64_t context = options.max_model_len;
  if (options.cache_bytes > 0) {
    runner.cache_tokens =
        options.cache_bytes / std::max<int64_t>(plan(kPageTokens).kv_bytes, 1) * kPageTokens;
    if (runner.cache_tokens < std::max(context, kPageTokens))
      return Error{
          ErrorCode::kInvalidArgument,
          str_cat("--kv-cache-memory-bytes: ", options.cache_bytes, " hold ", runner.cache_tokens,
                  " tokens, not the ", std::max(context, kPageTokens), " of one sequence")};
    if (context == 0)
      context = std::min({config.max_positions, kDefaultContext, runner.cache_tokens});
  } else {
    if (context == 0) context = choose_context(config.max_positions, available, bytes);
    runner.cache_tokens = choose_cache(context, runner.max_sequences, available, bytes);
  }
  engine.max_context = context;
  return engine;
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> LoadedModel::load(const ModelOptions& options,
                                                       const Progress& progress) {
  TRY_ASSIGN(Backend backend, make_backend(options.backend));
  TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options.model));
  TRY_ASSIGN(ModelConfig config, ModelConfig::parse(checkpoint.config()));
  TRY(check_context(options.max_model_len, config));
  const std::string& directory = checkpoint.directory();
  TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::load(directory));
  TRY_ASSIGN(std::optional<ChatTemplate> chat_template,
             load_template(directory, tokenizer.config(), options.chat_template));
  TRY_ASSIGN(GenerationDefaults defaults, GenerationDefaults::load(directory));
  std::vector<int32_t> stops = stop_set(defaults, tokenizer, config);

  TRY_ASSIGN(LoadedWeights loaded_weights, load_weights(checkpoint, config, *backend.device,
                                                        {.threads = options.backend.threads,
                                                         .mtp = options.mtp,
                                                         .head = options.lm_head,
                                                         .progress = progress}));
  TRY_ASSIGN(Qwen35Model model, Qwen35Model::make(*backend.device, std::move(config),
                                                  std::move(loaded_weights.weights)));
  std::unique_ptr<LoadedModel> loaded(new LoadedModel{.directory = directory,
                                                      .report = std::move(loaded_weights.report),
                                                      .tokenizer = std::move(tokenizer),
                                                      .chat_template = std::move(chat_template),
                                                      .defaults = std::move(defaults),
                                                      .stop_ids = std::move(stops),
                                                      .backend = std::move(backend),
                                                      .model = std::move(model)});
  TRY_ASSIGN(const EngineOptions engine, engine_options(options, *loaded));
  TRY_ASSIGN(loaded->engine,
             Engine::make(loaded->model, *loaded->backend.device, *loaded->backend.ops, engine));
  return loaded;
}

Result<RenderedPrompt> LoadedModel::render(const ChatPrompt& prompt) const {
  if (!chat_template)
    return Error{ErrorCode::kNotFound,
                 directory + ": no chat template (chat_template.jinja) to make a prompt with"};
  ChatTemplateInput input{.messages = prompt.messages, .tools = prompt.tools};
  if (prompt.thinking) input.kwargs.set("enable_thinking", *prompt.thinking);
  const TokenizerConfig& config = tokenizer.config();
  if (config.bos_token) input.special_tokens.set("bos_token", *config.bos_token);
  if (config.eos_token) input.special_tokens.set("eos_token", *config.eos_token);
  if (config.pad_token) input.special_tokens.set("pad_token", *config.pad_token);
  return chat_template->render(input);
}

std::vector<int32_t> stop_set(const GenerationDefaults& defaults, const Tokenizer& tokenizer,
                              const ModelConfig& config) {
  std::vector<int32_t> ids = defaults.eos_token_ids;
  ids.insert(ids.end(), config.eos_token_ids.begin(), config.eos_token_ids.end());
  if (const std::optional<int32_t> eos = tokenizer.eos_id()) ids.push_back(*eos);
  std::erase_if(ids, [&](int32_t id) { return id >= config.vocab_size; });
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  return ids;
}

Status check_context(int64_t max_model_len, const ModelConfig& config) {
  if (max_model_len <= config.max_positions) return {};
  return Error{ErrorCode::kInvalidArgument,
               str_cat("--max-model-len: ", max_model_len, " is more than the ",
                       config.max_positions, " tokens this model was made for")};
}

int64_t choose_cache(int64_t context, int64_t sequences, int64_t available_bytes,
                     const std::function<int64_t(int64_t tokens)>& cache_bytes) {
  const double budget = kCacheShare * static_cast<double>(available_bytes);
  while (sequences > 1 && static_cast<double>(cache_bytes(context * sequences)) > budget)
    --sequences;
  return context * sequences;
}

int64_t choose_context(int64_t model_positions, int64_t available_bytes,
                       const std::function<int64_t(int64_t tokens)>& cache_bytes) {
  const double budget = kCacheShare * static_cast<double>(available_bytes);
  int64_t tokens = std::min(model_positions, kDefaultContext);
  while (tokens > kPageTokens && static_cast<double>(cache_bytes(tokens)) > budget) tokens /= 2;
  return tokens;
}

}  // namespace pewter
