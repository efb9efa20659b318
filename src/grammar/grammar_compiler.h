// From what a request asks of an answer to a grammar over the tokens of a model. Grammars that were
// compiled lately are kept, and so are the masks of their states.
#pragma once

#include <functional>
#include <list>
#include <mutex>

#include "grammar/answer_rules.h"
#include "grammar/matcher.h"

namespace pewter::grammar {

// The answer itself; in_reasoning: behind reasoning, which ends with </think> and up to two line
// breaks. Errors: kInvalidArgument, kUnsupported.
Result<Automaton> compile_answer(const AnswerRules& rules, bool in_reasoning);

// Safe for several threads.
class GrammarCompiler {
 public:
  // token_texts: as Vocabulary wants them; asked for once, when the first grammar is compiled.
  explicit GrammarCompiler(std::function<std::vector<std::string>()> token_texts)
      : token_texts_(std::move(token_texts)) {}

  Result<std::shared_ptr<const TokenGrammar>> compile(const AnswerRules& rules, bool in_reasoning);

 private:
  static constexpr size_t kMostKept = 64;
  static constexpr int64_t kMostKeptBytes = int64_t{128} << 20;
  struct Kept {
    std::string key;
    std::shared_ptr<const TokenGrammar> grammar;
  };
  static int64_t bytes_of(const Kept& kept);
  std::shared_ptr<MaskCache> masks();
  std::shared_ptr<const TokenGrammar> find(const std::string& key);

  std::function<std::vector<std::string>()> token_texts_;
  std::once_flag built_;
  std::shared_ptr<MaskCache> masks_;
  std::mutex mutex_;      // guards what follows
  std::list<Kept> kept_;  // the one used last first
  int64_t kept_bytes_ = 0;
};

}  // namespace pewter::grammar
