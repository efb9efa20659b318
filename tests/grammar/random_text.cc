#include "grammar/random_text.h"

namespace pewter::test {
namespace {

bool closes(std::string_view token) {
  return token.find_first_of("\"}]<") == 0 || token.starts_with("\n<");
}

}  // namespace

std::vector<std::string> small_vocabulary() {
  std::vector<std::string> tokens = {""};
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  for (const char* text : {"{\"",
                           "\":",
                           "\": ",
                           "\",",
                           "\", \"",
                           "\"}",
                           "}}",
                           "]}",
                           "],",
                           "},",
                           ", ",
                           ",\n",
                           "true",
                           "false",
                           "null",
                           "\n  ",
                           "12",
                           "3.5",
                           "-1",
                           "0.",
                           "name",
                           "\\\"",
                           "\\u00",
                           "é",
                           "😀",
                           "abc",
                           "a",
                           "b1",
                           "[1,",
                           "]]",
                           "<tool_call>",
                           "</tool_call>",
                           "<function=",
                           "</function>",
                           "<parameter=",
                           "</parameter>",
                           "\n</parameter>",
                           ">\n",
                           "</think>",
                           "\n\n",
                           "2024-",
                           "-0",
                           "@",
                           ".com",
                           "T1",
                           "Z"})
    tokens.emplace_back(text);
  return tokens;
}

std::optional<std::string> random_text(const std::shared_ptr<const grammar::TokenGrammar>& grammar,
                                       Rng& rng, int most_tokens) {
  const grammar::Vocabulary& vocabulary = grammar->vocabulary();
  grammar::Matcher matcher(grammar);
  std::vector<uint32_t> mask(static_cast<size_t>(vocabulary.mask_words()));
  std::string text;
  for (int step = 0; step < most_tokens; ++step) {
    if (matcher.is_finished() || (matcher.is_complete() && rng.below(3) == 0)) return text;
    matcher.fill_mask(mask);
    std::vector<int32_t> allowed, closing;
    for (int32_t token = 0; token < vocabulary.size(); ++token) {
      if ((mask[static_cast<size_t>(token) / 32] >> token % 32 & 1u) == 0) continue;
      allowed.push_back(token);
      if (closes(vocabulary.text(token))) closing.push_back(token);
    }
    CHECK(!allowed.empty() || matcher.is_complete(), "a dead end: ", text);
    if (allowed.empty()) return text;
    const bool close = !closing.empty() && rng.below(3) == 0;
    const std::vector<int32_t>& from = close ? closing : allowed;
    const int32_t token = from[rng.below(from.size())];
    CHECK(matcher.push(token), "a token of the mask cannot be read: ", text, "|",
          vocabulary.text(token));
    matcher.commit();
    text += vocabulary.text(token);
  }
  return std::nullopt;
}

}  // namespace pewter::test
