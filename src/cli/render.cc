// pewter render: the prompt that a request to one of the chat APIs becomes, and its tokens. Reads a
// model's small files, not its weights.
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/model_path.h"
#include "cli/commands.h"
#include "cli/loaded_model.h"
#include "cli/terminal.h"
#include "server/answer/served_model.h"
#include "server/anthropic/messages_request.h"
#include "server/openai/schema.h"
#include "server/responses/responses_request.h"

namespace pewter {
namespace {

constexpr int64_t kRequestLimit = int64_t{64} << 20;

class RenderCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.positional("REQUEST", request_, "JSON file with the request's body; - is standard input");
    flags.positional("MODEL", model_, "Directory of the model");
    flags.group("Prompt");
    flags.option("--api", "NAME", api_,
                 "What the request is for: chat, responses (/v1/responses) or messages "
                 "(/v1/messages)");
    flags.option("--chat-template", "FILE", chat_template_, "Use this Jinja template");
    flags.flag("--strict-messages", strict_, "Leave late and repeated system messages as they are");
    flags.group("Output");
    flags.flag("--json", json_, "Write an object with the prompt and its token ids");
    flags.footer("Writes the prompt as it is, without a newline behind it.");
  }
  Status check() override {
    if (api_ == "chat" || api_ == "responses" || api_ == "messages") return {};
    return Error{ErrorCode::kInvalidArgument, "--api: want chat, responses or messages"};
  }
  Result<int> run() override;

 private:
  Result<server::ChatRequest> read_request() const;
  Result<server::ChatRequest> parse(const std::string& body) const;

  std::string request_, model_, api_ = "chat";
  std::optional<std::string> chat_template_;
  bool strict_ = false, json_ = false;
};

Result<server::ChatRequest> RenderCommand::parse(const std::string& body) const {
  const server::SchemaOptions options{.messages = {.strict = strict_}, .own_templates = true};
  if (api_ == "messages") return server::parse_messages_request(body, {.schema = options});
  if (api_ == "chat") return server::parse_chat_request(body, options);
  TRY_ASSIGN(server::ResponsesRequest request, server::parse_responses_request(body, options));
  return std::move(request.chat);
}

Result<server::ChatRequest> RenderCommand::read_request() const {
  std::string body;
  if (request_ == "-") {
    body = read_standard_input();
  } else {
    TRY_ASSIGN(body, read_file(request_, kRequestLimit));
  }
  Result<server::ChatRequest> request = parse(body);
  if (!request) return request.error().within(request_);
  return request;
}

Result<int> RenderCommand::run() {
  TRY_ASSIGN(const server::ChatRequest request, read_request());
  TRY_ASSIGN(const ModelPath path, resolve_model_path(model_));
  TRY_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(path.directory));
  TRY_ASSIGN(const std::optional<ChatTemplate> chat_template,
             load_chat_template(path.directory, tokenizer.config(), chat_template_.value_or("")));
  server::ServedModel model;
  model.tokenizer = &tokenizer;
  model.chat_template = chat_template ? &*chat_template : nullptr;
  TRY_ASSIGN(const RenderedPrompt prompt, model.render(request.chat));
  TRY_ASSIGN(const std::vector<int32_t> ids, tokenizer.encode_prompt(prompt.text, prompt.foreign));

  std::string out = prompt.text;
  if (json_) {
    Json::Array list(ids.begin(), ids.end());
    Json json;
    json.set("prompt", prompt.text);
    json.set("tokens", Json(std::move(list)));
    out = json.dump() + "\n";
  }
  if (!write_text(STDOUT_FILENO, out))
    return Error{ErrorCode::kUnavailable, "standard output does not take the prompt"};
  return kExitOk;
}

}  // namespace

std::unique_ptr<Command> make_render_command() { return std::make_unique<RenderCommand>(); }

}  // namespace pewter
