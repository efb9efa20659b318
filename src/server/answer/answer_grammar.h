// The grammar of an answer: what a request says about its form, its tools and their choice, and
// whether reasoning comes first, put together and compiled for the model's tokens.
#pragma once

#include "grammar/grammar_compiler.h"
#include "server/answer/served_model.h"

namespace pewter::server {

// Null: nothing is asked for. opens_reasoning: the prompt ends inside a block of reasoning.
//
//   tool_choice required or named   calls and nothing else
//   tools beside a format           calls, or an answer of that form
//   a strict tool                   text with calls in it, whose arguments satisfy their schemas
// Errors name the field, and the place in a schema: "response_format.json_schema.schema: #/…".
Result<std::shared_ptr<const grammar::TokenGrammar>> answer_grammar(const ChatRequest& request,
                                                                    const ServedModel& model,
                                                                    bool opens_reasoning);
// Of an answer without tools and reasoning.
Result<std::shared_ptr<const grammar::TokenGrammar>> answer_grammar(
    const std::optional<AnswerFormat>& format, const ServedModel& model);

// A compiler for a model's tokens. The tokenizer outlives it. vocab_size: the model's.
std::shared_ptr<grammar::GrammarCompiler> make_grammar_compiler(const Tokenizer& tokenizer,
                                                                int64_t vocab_size);

}  // namespace pewter::server
