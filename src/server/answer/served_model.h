// ServedModel: what the endpoints need of a loaded model, and how the person who serves it wants
// it to behave. Owned by whoever loaded it.
#pragma once

#include <chrono>

#include "engine/engine.h"
#include "server/answer/chat_message.h"
#include "server/request/chat_request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pewter::grammar {
class GrammarCompiler;
}

namespace pewter::server {

// How long models think where a request does not say.
struct ReasoningOptions {
  int64_t budget = -1;  // tokens before it is closed; -1: no limit
  std::string message;  // a last sentence, put in before the end
  std::vector<std::pair<std::string, int64_t>> effort_budgets;  // of "low", "high", …
};

struct ServedModel {
  std::vector<std::string> names;  // at least one; the first is reported
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template = nullptr;  // null: no chats
  Engine* engine = nullptr;
  std::vector<int32_t> stop_ids;  // the model's own ends, ascending
  SchemaOptions schema;
  std::shared_ptr<grammar::GrammarCompiler> grammars;  // null: answers are not constrained
  Json default_template_kwargs;                        // an object, or null; a request's own win
  ReasoningField reasoning_field = ReasoningField::kBoth;
  bool parse_reasoning = true;  // otherwise all that is generated is content
  ReasoningOptions reasoning;
  bool stop_in_reasoning = false, strict_max_tokens = false;
  bool exclude_unwanted_tools = false;  // with tool_choice none the prompt has none
  int64_t created = 0;  // Unix time of loading
  // Proxies and clients close connections that say nothing for a minute or so.
  std::chrono::seconds ping_pause{15};
  std::string fingerprint = "pewter";

  const std::string& name() const { return names.front(); }
  // Error: kNotFound when a request names another model. None means this one.
  Status check_name(const std::optional<std::string>& name) const;
  // The prompt of a chat. Errors: kInvalidArgument, the template's message; kNotFound without a
  // template.
  Result<RenderedPrompt> render(const ChatInput& chat) const;
  // Cuts a prompt at its beginning, if the request wants that.
  void truncate(std::vector<int32_t>& prompt, const GenerationFields& fields) const;
  // The engine's request for a prompt, max_tokens cut to what the context leaves. Errors:
  // kInvalidArgument, naming the field, or that the context is too small.
  Result<Request> make_request(std::vector<int32_t> prompt, const GenerationFields& fields,
                               int64_t default_max_tokens) const;
  // The limit of reasoning that the prompt has opened. Error: kUnsupported, when there is a budget
  // and the model's vocabulary has no </think>.
  Result<ReasoningLimit> reasoning_limit(const Thinking& thinking) const;

 private:
  Status ban(const std::vector<std::string>& words, Request& request) const;
};

}  // namespace pewter::server
