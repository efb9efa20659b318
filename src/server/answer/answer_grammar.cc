#include "server/answer/answer_grammar.h"

#include "grammar/tool_grammar.h"

namespace pewter::server {
namespace {

using grammar::AnswerRules;
using grammar::TokenGrammar;
using Compiled = Result<std::shared_ptr<const TokenGrammar>>;

Compiled compile(const AnswerRules& rules, const std::string& path, const ServedModel& model,
                 bool in_reasoning) {
  if (!model.grammars)
    return Error{ErrorCode::kUnsupported, str_cat(path, ": this server constrains no answers")};
  Compiled grammar = model.grammars->compile(rules, in_reasoning);
  if (!grammar) return grammar.error().within(path);
  return grammar;
}

}  // namespace

Compiled answer_grammar(const ChatRequest& request, const ServedModel& model,
                        bool opens_reasoning) {
  const std::optional<AnswerFormat>& format = request.generation.format;
  const bool has_tools = request.tools != nullptr && request.tool_choice != ToolChoice::kNone;
  const bool forced = has_tools && (request.tool_choice == ToolChoice::kRequired ||
                                    request.tool_choice == ToolChoice::kNamed);
  const bool strict = has_tools && grammar::has_strict_tool(request.chat.tools);
  if (!format && !forced && !strict) return std::shared_ptr<const TokenGrammar>();
  AnswerRules rules;
  if (format) rules = format->rules;
  if (has_tools) {
    rules.tools = {.tools = request.chat.tools,
                   .required = forced || format,
                   .named = request.tool_name,
                   .parallel = request.parallel_tool_calls};
    if (forced || !format) rules.kind = AnswerRules::Kind::kToolCalls;
  }
  return compile(rules, format && !forced ? format->path : "tools", model, opens_reasoning);
}

Compiled answer_grammar(const std::optional<AnswerFormat>& format, const ServedModel& model) {
  if (!format) return std::shared_ptr<const TokenGrammar>();
  return compile(format->rules, format->path, model, /*in_reasoning=*/false);
}

std::shared_ptr<grammar::GrammarCompiler> make_grammar_compiler(const Tokenizer& tokenizer,
                                                                int64_t vocab_size) {
  return std::make_shared<grammar::GrammarCompiler>([&tokenizer, vocab_size] {
    std::vector<std::string> texts(static_cast<size_t>(vocab_size));
    const auto known = std::min<int64_t>(vocab_size, tokenizer.vocab_size());
    for (int32_t id = 0; id < known; ++id)
      if (!tokenizer.is_special(id))
        texts[static_cast<size_t>(id)] = std::string(tokenizer.bytes_of(id));
    return texts;
  });
}

}  // namespace pewter::server
