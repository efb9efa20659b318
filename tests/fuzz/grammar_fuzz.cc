// Schemas, patterns, grammars and tools of clients: whatever they hold, compiling ends with an
// automaton or an error that is valid UTF-8, and what is read with it stays within its limits:
// every token of a mask can be read, and no other. The first byte chooses the kind, the second the
// text that is read.
#include <optional>

#include "base/check.h"
#include "base/utf8.h"
#include "grammar/grammar_compiler.h"
#include "grammar/reader.h"

using namespace pewter;
using namespace pewter::grammar;

namespace {

std::vector<std::string> vocabulary() {
  std::vector<std::string> tokens = {""};
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  for (const char* text :
       {"{\"", "\":", "\",\"", "}}", "[[", "true", "null", "12", "aaaa", "\\\"", "</"})
    tokens.emplace_back(text);
  return tokens;
}

std::optional<AnswerRules> rules_of(uint8_t kind, std::string_view text) {
  AnswerRules rules{.kind = static_cast<AnswerRules::Kind>(kind % 7), .text = std::string(text)};
  using Kind = AnswerRules::Kind;
  if (rules.kind == Kind::kRegex || rules.kind == Kind::kEbnf) return rules;
  const auto json = Json::parse(text, {.max_depth = 100, .max_values = 20000});
  if (!json) return std::nullopt;
  rules.json = *json;
  if (rules.kind == Kind::kChoice) {
    if (!json->is_array()) return std::nullopt;
    for (const Json& item : json->as_array())
      if (!item.is_string()) return std::nullopt;
  }
  if (rules.kind == Kind::kToolCalls) {
    if (!json->is_array()) return std::nullopt;
    rules.tools = {.tools = *json, .required = (kind & 8) != 0};
  }
  return rules;
}

// A walk through the grammar that a number steers.
void walk(const std::shared_ptr<const TokenGrammar>& grammar, uint8_t steer) {
  Matcher matcher(grammar);
  std::vector<uint32_t> mask(static_cast<size_t>(grammar->vocabulary().mask_words()));
  uint64_t state = steer + 1u;
  for (int step = 0; step < 40 && !matcher.is_finished(); ++step) {
    matcher.fill_mask(mask);
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < grammar->vocabulary().size(); ++token) {
      const bool set = (mask[static_cast<size_t>(token) / 32] >> token % 32 & 1u) != 0;
      if (step < 6 || set) {
        const bool read = matcher.push(token);
        if (read) matcher.pop(1);
        // With more readings than the limit some are dropped, in no particular order.
        CHECK(read == set || matcher.overflowed(), "token ", token, " in the mask: ", set);
        if (read && set) allowed.push_back(token);
      }
    }
    if (allowed.empty()) {
      CHECK(matcher.is_complete() || matcher.overflowed(), "a dead end");
      return;
    }
    state = state * 6364136223846793005u + 1442695040888963407u;
    CHECK(matcher.push(allowed[(state >> 33) % allowed.size()]), "an allowed token");
    if ((state >> 60 & 1) != 0) matcher.commit();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::optional<AnswerRules> rules = rules_of(data[0], text);
  if (!rules) return 0;
  static GrammarCompiler compiler(&vocabulary);
  const auto grammar = compiler.compile(*rules, (data[0] & 16) != 0);
  if (!grammar) {
    const std::string& why = grammar.error().message;
    CHECK(!why.empty() && is_valid_utf8(why), "an error without words, or not in UTF-8");
    CHECK(grammar.error().code != ErrorCode::kInternal, why);
    return 0;
  }
  walk(*grammar, data[1]);
  return 0;
}
