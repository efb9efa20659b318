#include "grammar/grammar_compiler.h"

#include "grammar/ebnf.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"
#include "grammar/tagged_text.h"
#include "grammar/tool_grammar.h"

namespace pewter::grammar {
namespace {

constexpr uint32_t kMostPatternStates = 2048;

using Kind = AnswerRules::Kind;

Result<Expr> pattern_of(const std::string& text) {
  TRY_ASSIGN(Expr pattern, parse_regex(text, {.encode = characters, .whole = true}));
  const auto small = make_byte_dfa({pattern}, {.most_states = kMostPatternStates});
  return small ? dfa(*small, {literal("")}) : pattern;
}

Result<Expr> form_of(const AnswerRules& rules, Grammar& grammar, JsonRules& json) {
  switch (rules.kind) {
    case Kind::kJsonObject:
      return json.object();
    case Kind::kJsonSchema:
      return add_schema(rules.json, {}, grammar, json);
    case Kind::kRegex:
      return pattern_of(rules.text);
    case Kind::kChoice: {
      std::vector<Expr> texts;
      for (const Json& text : rules.json.as_array()) texts.push_back(literal(text.as_string()));
      return choice(std::move(texts));
    }
    case Kind::kEbnf:
      return add_ebnf(rules.text, grammar);
    case Kind::kToolCalls:
      return add_tool_calls(rules.tools, grammar);
    case Kind::kTaggedText:
      return add_tagged_text(rules.json, grammar, json);
  }
  return nothing();
}

Result<Expr> answer_of(const AnswerRules& rules, Grammar& grammar, JsonRules& json) {
  TRY_ASSIGN(Expr answer, form_of(rules, grammar, json));
  if (rules.kind == Kind::kToolCalls || !rules.tools.tools.is_array()) return answer;
  Result<Expr> calls = add_tool_calls(rules.tools, grammar);
  if (!calls) return calls.error().within("tools");
  return choice({std::move(answer), *std::move(calls)});
}

// Equal answers have equal keys.
std::string key_of(const AnswerRules& rules, bool in_reasoning) {
  const ToolCallRules& tools = rules.tools;
  Json key(Json::Array{static_cast<int>(rules.kind), in_reasoning, rules.json, rules.text,
                       tools.tools, tools.required, tools.named, tools.parallel});
  return key.dump();
}

}  // namespace

Result<Automaton> compile_answer(const AnswerRules& rules, bool in_reasoning) {
  const WorkBudget budget;
  Grammar grammar;
  grammar.add("the answer", nothing());
  JsonRules json(grammar);
  TRY_ASSIGN(Expr answer, answer_of(rules, grammar, json));
  if (in_reasoning) {
    TRY_ASSIGN(Expr reasoning, text_through("</think>"));
    answer = sequence({std::move(reasoning), repeat(literal("\n"), 0, 2), std::move(answer)});
  }
  grammar.rules[0].body = std::move(answer);
  TRY_ASSIGN(Automaton automaton, Automaton::compile(std::move(grammar)));
  Reader reader(automaton);
  Threads threads;
  reader.start(threads);
  if (threads.list.empty())
    return Error{ErrorCode::kInvalidArgument, "nothing but the empty text matches it"};
  return automaton;
}

Result<std::shared_ptr<const TokenGrammar>> GrammarCompiler::compile(const AnswerRules& rules,
                                                                     bool in_reasoning) {
  const std::string key = key_of(rules, in_reasoning);
  if (std::shared_ptr<const TokenGrammar> known = find(key)) return known;
  TRY_ASSIGN(Automaton automaton, compile_answer(rules, in_reasoning));
  auto grammar = std::make_shared<const TokenGrammar>(std::move(automaton), masks());
  const std::lock_guard lock(mutex_);
  kept_.push_front({key, grammar});
  kept_bytes_ += bytes_of(kept_.front());
  while (kept_.size() > kMostKept || kept_bytes_ > kMostKeptBytes) {
    kept_bytes_ -= bytes_of(kept_.back());
    kept_.pop_back();
  }
  return std::shared_ptr<const TokenGrammar>(std::move(grammar));
}

int64_t GrammarCompiler::bytes_of(const Kept& kept) {
  return static_cast<int64_t>(kept.key.size()) + kept.grammar->automaton().bytes();
}

std::shared_ptr<MaskCache> GrammarCompiler::masks() {
  std::call_once(built_, [this] {
    masks_ = std::make_shared<MaskCache>(std::make_shared<const Vocabulary>(token_texts_()));
  });
  return masks_;
}

std::shared_ptr<const TokenGrammar> GrammarCompiler::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  for (auto at = kept_.begin(); at != kept_.end(); ++at) {
    if (at->key != key) continue;
    kept_.splice(kept_.begin(), kept_, at);
    return at->grammar;
  }
  return nullptr;
}

}  // namespace pewter::grammar
