// What a request says about the form of its answer: response_format and its namesakes in other
// APIs, and the fields of vLLM and llama.cpp for the same thing. What follows from it together with
// tools is answer_grammar.h's.
#pragma once

#include "grammar/answer_rules.h"
#include "server/request/fields.h"

namespace pewter::server {

struct AnswerFormat {
  grammar::AnswerRules rules;
  std::string path;  // the field that asks for it, for errors
};

// {"type": "text" | "json_object" | "json_schema", …} with the schema where OpenAI's chats, its
// responses, Anthropic or llama.cpp put it. Errors name the field.
Status read_output_format(const Json& format, const std::string& path,
                          std::optional<AnswerFormat>& into);
// structured_outputs, guided_json, guided_regex, guided_choice, guided_grammar, and llama.cpp's
// grammar and json_schema. Error: kInvalidArgument when there are two, or one of them beside a
// format.
Status read_structured_outputs(Fields& fields, std::optional<AnswerFormat>& into);

}  // namespace pewter::server
