#include "text/chat_template.h"

#include "base/utf8.h"

namespace pewter {
namespace {

constexpr std::string_view kPlace = "chat template, ";

Error placed(const Error& error) { return Error{error.code, str_cat(kPlace, error.message)}; }

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string source) {
  Result<jinja::Template> parsed = jinja::Template::parse(source);
  if (!parsed) return placed(parsed.error());
  return ChatTemplate(std::move(source), std::move(*parsed));
}

Result<RenderedPrompt> ChatTemplate::render(const ChatTemplateInput& input) const {
  const Json generation(input.add_generation_prompt), documents;
  // Those that come later win: a keyword argument cannot pose as the conversation.
  std::vector<jinja::Template::Variable> variables = {{"documents", &documents}};
  if (input.special_tokens.is_object())
    for (const auto& [name, value] : input.special_tokens.as_object())
      variables.push_back({name, &value, jinja::Origin::kAuthor});
  if (input.kwargs.is_object())
    for (const auto& [name, value] : input.kwargs.as_object()) variables.push_back({name, &value});
  variables.push_back({"messages", &input.messages});
  variables.push_back({"tools", &input.tools});
  variables.push_back({"add_generation_prompt", &generation});
  Result<jinja::Text> text = template_.render(variables, input.local_time, input.limits);
  if (!text)
    return text.error().code == ErrorCode::kInvalidArgument ? text.error() : placed(text.error());
  return RenderedPrompt{std::move(text->bytes), std::move(text->foreign)};
}

}  // namespace pewter
