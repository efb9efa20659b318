// A model ready to answer: checkpoint, tokenizer, chat template, generation defaults, weights on a
// backend, and the engine. The one place that puts them together; what a command does with them is
// its own affair.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/factory.h"
#include "cli/draft_vocabulary.h"
#include "cli/memory_report.h"
#include "engine/engine.h"
#include "engine/generation_defaults.h"
#include "model/qwen35/load.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pewter {

struct ModelOptions {
  std::string model;
  BackendOptions backend;
  LmHead lm_head = LmHead::kAsStored;
  MemoryLimits memory;
  int64_t max_model_len = 0;  // tokens of prompt and output; 0: chosen, kLongestContext
  RunnerOptions runner;       // cache_tokens is set by load; max_sequences may be lowered
  int64_t cache_bytes = 0;    // KV cache, all sequences together; 0: chosen
  int64_t max_waiting = EngineOptions().max_waiting;
  std::string chat_template;          // a file to use in place of the model's own; "": none
  DraftOptions draft;                 // off by default
  std::string drafter;                // directory of a DFlash drafter; "": none
  DraftVocabulary draft_vocabulary;   // of drafters that run a model
  bool every_drafter = false;         // the MTP layer is loaded whatever drafts, if there is one
  std::vector<std::string> warnings;  // to stand before the report's own

  // Of the MTP layer, which drafts alone use.
  MtpUse mtp() const;
  MemoryOptions memory_options(bool with_mtp) const;
};

// What a chat template is given.
struct ChatPrompt {
  Json messages;
  Json tools;                    // a list, or null
  std::optional<bool> thinking;  // enable_thinking; unset: the template's own way
};

struct LoadHooks {
  // Bytes read so far, and in all; called from loading threads, one at a time.
  std::function<void(int64_t done, int64_t total)> progress = {};
  std::function<void(const MemoryReport&)> on_plan = {};  // it fits, and loading begins
};

struct LoadedModel {
  // Errors name the file and what is wrong with it; kResourceExhausted when memory is too small.
  // Small files are read and memory is planned first, so that faults show before gigabytes have
  // been read.
  static Result<std::unique_ptr<LoadedModel>> load(const ModelOptions& options,
                                                   const LoadHooks& hooks);

  // The prompt of a chat, up to where the model goes on. Error: kInvalidArgument, the template's
  // own message; kNotFound when the model has no template.
  Result<RenderedPrompt> render(const ChatPrompt& prompt) const;

  std::string directory;
  LoadReport report;  // its warnings are for the person who loads
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
  GenerationDefaults defaults;
  std::vector<int32_t> stop_ids;
  Backend backend;  // outlives model and engine
  Qwen35Model model;
  EngineOptions engine_options;  // the engine's, to make another one
  std::unique_ptr<Engine> engine;
};

// A model's chat template: the file `instead` unless "", chat_template.jinja, or else the one
// inside tokenizer_config.json; nothing when there is none. Errors name the file and the line.
Result<std::optional<ChatTemplate>> load_chat_template(const std::string& directory,
                                                       const TokenizerConfig& config,
                                                       const std::string& instead);

// Ids that end an answer: what generation_config.json, tokenizer_config.json and config.json name
// as the end of a sequence, all of them.
std::vector<int32_t> stop_set(const GenerationDefaults& defaults, const Tokenizer& tokenizer,
                              const ModelConfig& config);

// Error: kInvalidArgument when it is more than the model's positions.
Status check_context(int64_t max_model_len, const ModelConfig& config);

}  // namespace pewter
