#include "cli/loaded_model.h"

#include <algorithm>

#include "base/file.h"
#include "model/qwen35/draft_head.h"

namespace pewter {
namespace {

constexpr int64_t kTemplateLimit = int64_t{4} << 20;

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

}  // namespace

Result<std::optional<ChatTemplate>> load_chat_template(const std::string& directory,
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

MtpUse ModelOptions::mtp() const {
  if (every_drafter) return MtpUse::kWhenPresent;
  if (!draft.enabled() || !drafter.empty()) return MtpUse::kSkip;
  if (draft.method == DraftMethod::kMtp) return MtpUse::kRequired;
  return draft.method == DraftMethod::kAuto ? MtpUse::kWhenPresent : MtpUse::kSkip;
}

MemoryOptions ModelOptions::memory_options(bool with_mtp) const {
  MemoryOptions options{.limits = memory,
                        .context = max_model_len,
                        .cache_bytes = cache_bytes,
                        .runner = runner,
                        .with_mtp = with_mtp};
  options.runner.decode_rows = std::max(options.runner.decode_rows, draft.decode_rows());
  return options;
}

namespace {

// What is wrong with a drafter shows before the model is read.
Result<std::optional<DflashPlan>> plan_drafter(const ModelOptions& options,
                                               const ModelConfig& target, const Device& device) {
  if (options.drafter.empty() || !options.draft.enabled()) return std::optional<DflashPlan>();
  TRY_ASSIGN(DflashPlan plan, plan_dflash(options.drafter, device));
  if (const Status fits = plan.config.check_target(target); !fits)
    return fits.error().within(options.drafter);
  return std::optional(std::move(plan));
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> LoadedModel::load(const ModelOptions& options,
                                                       const LoadHooks& hooks) {
  TRY_ASSIGN(Backend backend, make_backend(options.backend));
  TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options.model));
  TRY_ASSIGN(ModelConfig config, ModelConfig::parse(checkpoint.config()));
  TRY(check_context(options.max_model_len, config));
  TRY_ASSIGN(const std::optional<DflashPlan> drafter,
             plan_drafter(options, config, *backend.device));
  const std::string& directory = checkpoint.directory();
  TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::load(directory));
  TRY_ASSIGN(std::optional<ChatTemplate> chat_template,
             load_chat_template(directory, tokenizer.config(), options.chat_template));
  TRY_ASSIGN(GenerationDefaults defaults, GenerationDefaults::load(directory));
  std::vector<int32_t> stops = stop_set(defaults, tokenizer, config);

  const int64_t vocab_limit = std::min<int64_t>(tokenizer.vocab_size(), config.vocab_size);
  Result<std::vector<int32_t>> draft_ids =
      draft_vocabulary_ids(options.draft_vocabulary, tokenizer, vocab_limit);
  if (!draft_ids) return draft_ids.error().within("--draft-head-rows");

  MemoryReport memory;
  const auto plan_memory = [&](const LoadPlan& plan) -> Status {
    MemoryOptions planned = options.memory_options(plan.with_mtp);
    planned.drafter = drafter;
    if (drafter)
      planned.runner.decode_rows = std::min(planned.runner.decode_rows, drafter->config.block_size);
    // Without a drafter to choose from it, none is made.
    if (!plan.with_mtp && !drafter) draft_ids->clear();
    const int64_t draft_head =
        draft_ids->empty() ? 0 : draft_head_bytes(config, *backend.device, std::ssize(*draft_ids));
    TRY_ASSIGN(memory,
               plan_model_memory(backend, config, stored_bytes(plan, *backend.device) + draft_head,
                                 planned));
    TRY(check_fits(options.model, memory));
    if (hooks.on_plan) hooks.on_plan(memory);
    return {};
  };
  TRY_ASSIGN(LoadedWeights loaded_weights, load_weights(checkpoint, config, *backend.device,
                                                        {.threads = options.backend.threads,
                                                         .mtp = options.mtp(),
                                                         .head = options.lm_head,
                                                         .on_plan = plan_memory,
                                                         .progress = hooks.progress}));
  if (!draft_ids->empty()) {
    TRY_ASSIGN(loaded_weights.weights.draft_head,
               load_draft_head(checkpoint, config, *backend.device, *std::move(draft_ids)));
  }
  TRY_ASSIGN(Qwen35Model model, Qwen35Model::make(*backend.device, std::move(config),
                                                  std::move(loaded_weights.weights)));
  std::vector<std::string>& warnings = loaded_weights.report.warnings;
  warnings.insert(warnings.begin(), options.warnings.begin(), options.warnings.end());
  std::unique_ptr<LoadedModel> loaded(new LoadedModel{.directory = directory,
                                                      .report = std::move(loaded_weights.report),
                                                      .tokenizer = std::move(tokenizer),
                                                      .chat_template = std::move(chat_template),
                                                      .defaults = std::move(defaults),
                                                      .stop_ids = std::move(stops),
                                                      .backend = std::move(backend),
                                                      .model = std::move(model)});
  EngineOptions engine{.runner = memory.plan.runner,
                       .max_context = memory.plan.context,
                       .max_waiting = options.max_waiting,
                       .draft = options.draft};
  if (drafter) {
    loaded->model.taps = drafter->config.taps;
    TRY_ASSIGN(engine.dflash, DflashModel::load(options.drafter, *loaded->backend.device));
  }
  const int64_t vocab_size = loaded->model.config.vocab_size;
  engine.vocab_limit = vocab_limit;
  engine.token_mask = mask_of(loaded->tokenizer, engine.vocab_limit, vocab_size);
  loaded->engine_options = engine;
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

}  // namespace pewter
