// Masks: a token is in the mask exactly when it can be read, on any stack, in any grammar, with any
// way of going back. And what a mask costs with a vocabulary of the size in use.
#include "grammar/matcher.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/clock.h"
#include "base/rng.h"
#include "grammar/json_schema.h"

namespace pewter::grammar {
namespace {

using Mask = std::vector<uint32_t>;

bool is_set(const Mask& mask, int32_t token) {
  return (mask[static_cast<size_t>(token) / 32] >> token % 32 & 1u) != 0;
}

// Every byte, what JSON texts are made of, and random pieces of it.
std::vector<std::string> small_vocabulary(uint64_t seed) {
  std::vector<std::string> tokens = {""};  // a control token
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
                           "},{\"",
                           " \"",
                           ", ",
                           ",\n",
                           "true",
                           "false",
                           "null",
                           "\n  ",
                           "\n    ",
                           "[[",
                           "[[[[[[",
                           "]]]]",
                           "12",
                           "3.5",
                           "-1",
                           "name",
                           "na",
                           "age\":",
                           "\\\"",
                           "\\u00",
                           "d83d",
                           "é",
                           "😀",
                           "abc",
                           "b\",\"c",
                           "[1,",
                           "0,0",
                           "1]",
                           "\"a\":1,\"",
                           "aaaaaaaa",
                           "                "})
    tokens.emplace_back(text);
  Rng rng(seed);
  constexpr std::string_view kPieces = "{}[]\",:ab01 \n\\";
  while (tokens.size() < 900) {
    std::string& token = tokens.emplace_back();
    for (uint64_t i = 1 + rng.below(6); i > 0; --i) token += kPieces[rng.below(kPieces.size())];
  }
  return tokens;
}

std::shared_ptr<const TokenGrammar> compile(std::string_view schema,
                                            const std::shared_ptr<MaskCache>& masks) {
  Grammar grammar;
  grammar.add("root", nothing());
  JsonRules rules(grammar);
  const Json json = Json::parse(schema).value();
  grammar.rules[0].body = add_schema(json, {}, grammar, rules).value();
  return std::make_shared<const TokenGrammar>(Automaton::compile(std::move(grammar)).value(),
                                              masks);
}

constexpr const char* kSchemas[] = {
    "true",
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":5},"age":{"type":"integer"},
        "tags":{"type":"array","items":{"enum":["a","ab","b"]},"minItems":1,"maxItems":3}},
        "required":["name"]})",
    R"({"$defs":{"t":{"type":"array","items":{"$ref":"#/$defs/t"}}},"$ref":"#/$defs/t"})",
    R"({"type":"array","items":{"type":"number","minimum":-1.5,"maximum":20}})",
    R"({"type":"object","properties":{"a":{"const":1}},"additionalProperties":{"type":"boolean"}})",
    R"({"anyOf":[{"type":"string","pattern":"^a+b*$"},{"type":"string","pattern":"a{2,9}"},{"type":"null"}]})",
    R"({"type":"string","minLength":3,"maxLength":2000})",
};

TEST(Matcher, MasksAreWhatCanBeRead) {
  for (const uint64_t seed : {1u, 2u}) {
    const auto vocabulary = std::make_shared<const Vocabulary>(small_vocabulary(seed));
    const auto masks = std::make_shared<MaskCache>(vocabulary);
    Rng rng(seed);
    for (const char* schema : kSchemas) {
      const auto grammar = compile(schema, masks);
      int ended = 0;
      for (int text = 0; text < 6; ++text) {
        Matcher matcher(grammar);
        Mask mask(static_cast<size_t>(vocabulary->mask_words()));
        std::string written;
        for (int step = 0; step < 60 && !matcher.is_finished(); ++step) {
          matcher.fill_mask(mask);
          std::vector<int32_t> allowed;
          for (int32_t token = 0; token < vocabulary->size(); ++token) {
            const bool read = matcher.push(token);
            if (read) matcher.pop(1);
            ASSERT_EQ(is_set(mask, token), read) << schema << "\n"
                                                 << written << "|" << vocabulary->text(token);
            if (read) allowed.push_back(token);
          }
          ASSERT_TRUE(!allowed.empty() || matcher.is_complete()) << schema << "\n" << written;
          if (allowed.empty() || (matcher.is_complete() && rng.below(4) == 0)) break;
          const int32_t token = allowed[rng.below(allowed.size())];
          ASSERT_TRUE(matcher.push(token));
          written += vocabulary->text(token);
          if (rng.below(2) == 0) matcher.commit();
        }
        ended += matcher.is_complete();
        EXPECT_EQ(matches(grammar->automaton(), written), matcher.is_complete());
      }
      EXPECT_GE(ended, 0);
    }
  }
}

TEST(Matcher, GoesBack) {
  const auto vocabulary = std::make_shared<const Vocabulary>(small_vocabulary(3));
  const auto grammar = compile("true", std::make_shared<MaskCache>(vocabulary));
  Matcher matcher(grammar);
  const auto mask_now = [&] {
    Mask mask(static_cast<size_t>(vocabulary->mask_words()));
    matcher.fill_mask(mask);
    return mask;
  };
  std::vector<Mask> masks = {mask_now()};
  const std::string text = "[[{\"a\":[1,2";
  for (const char c : text) {
    ASSERT_TRUE(matcher.push(1 + static_cast<uint8_t>(c)));
    masks.push_back(mask_now());
  }
  EXPECT_FALSE(matcher.push(0)) << "a control token";
  EXPECT_FALSE(matcher.push(-1));
  EXPECT_FALSE(matcher.push(1 << 20));
  EXPECT_FALSE(matcher.push(1 + '}'));
  EXPECT_EQ(mask_now(), masks.back()) << "refused tokens leave no trace";
  for (size_t left = text.size(); left > 2; left -= 3) {
    matcher.pop(3);
    EXPECT_EQ(mask_now(), masks[left - 3]);
  }
}

TEST(Matcher, StopsNestingInTime) {
  const auto vocabulary = std::make_shared<const Vocabulary>(small_vocabulary(4));
  const auto grammar = compile("true", std::make_shared<MaskCache>(vocabulary));
  Matcher matcher(grammar);
  Mask mask(static_cast<size_t>(vocabulary->mask_words()));
  int depth = 0;
  while (matcher.push(1 + '[')) {
    matcher.commit();
    ASSERT_LT(++depth, 1000);
  }
  EXPECT_GT(depth, 150);
  matcher.fill_mask(mask);
  EXPECT_FALSE(is_set(mask, 1 + '['));
  EXPECT_TRUE(is_set(mask, 1 + ']'));
  EXPECT_TRUE(is_set(mask, 1 + '7'));
  for (; depth > 0; --depth) ASSERT_TRUE(matcher.push(1 + ']'));
  EXPECT_TRUE(matcher.is_finished());
}

TEST(Matcher, GrammarsShareMasksOfEqualRules) {
  const auto vocabulary = std::make_shared<const Vocabulary>(small_vocabulary(5));
  const auto masks = std::make_shared<MaskCache>(vocabulary);
  Mask mask(static_cast<size_t>(vocabulary->mask_words()));
  const auto use = [&](const char* schema) {
    const int64_t before = masks->figures().made;
    Matcher matcher(compile(schema, masks));
    for (const char c : std::string_view("\"ab"))
      EXPECT_TRUE(matcher.push(1 + static_cast<uint8_t>(c)));
    matcher.fill_mask(mask);
    return masks->figures().made - before;
  };
  EXPECT_EQ(use(R"({"type":"string"})"), 1);
  EXPECT_EQ(use(R"({"type":["string","null"]})"), 0);
}

TEST(Matcher, TheCacheHasABound) {
  const auto vocabulary = std::make_shared<const Vocabulary>(small_vocabulary(6));
  const auto masks = std::make_shared<MaskCache>(vocabulary, 2000);
  Matcher matcher(compile("true", masks));
  Mask mask(static_cast<size_t>(vocabulary->mask_words()));
  for (const char c : std::string_view("{\"abc\": [1, true, \"x\"]}")) {
    matcher.fill_mask(mask);
    EXPECT_LE(masks->figures().bytes, 4000);
    ASSERT_TRUE(matcher.push(1 + static_cast<uint8_t>(c)));
  }
  EXPECT_GT(masks->figures().made, 5);
}

// A vocabulary of the size and kind of Qwen's: bytes, words with and without a space before them,
// numbers' digits one by one, pieces of code, and characters of many scripts.
std::vector<std::string> large_vocabulary() {
  Rng rng(7);
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  constexpr std::string_view kLetters = "etaoinshrdlucmfwypvbgkqjxz";
  constexpr std::string_view kMarks = "\"',.:;(){}[]<>/\\|-_=+*&^%$#@!?~` \n\t";
  const auto letter = [&] {  // frequent ones more often
    return kLetters[std::min(rng.below(26), rng.below(26))];
  };
  while (tokens.size() < 248320) {
    std::string& token = tokens.emplace_back();
    const uint64_t kind = rng.below(100);
    if (kind < 62) {  // words
      if (rng.below(2) == 0) token += ' ';
      for (uint64_t i = 2 + rng.below(8); i > 0; --i) token += letter();
      if (rng.below(4) == 0) {
        const size_t at = token[0] == ' ' ? 1 : 0;
        token[at] = static_cast<char>(token[at] - 32);
      }
    } else if (kind < 90) {  // other scripts
      for (uint64_t i = 1 + rng.below(4); i > 0; --i) {
        const auto c = static_cast<uint32_t>(0x400 + rng.below(0x7000));
        token += {static_cast<char>(c < 0x800 ? 0xC0 | c >> 6 : 0xE0 | c >> 12)};
        if (c >= 0x800) token += static_cast<char>(0x80 | (c >> 6 & 0x3F));
        token += static_cast<char>(0x80 | (c & 0x3F));
      }
    } else if (kind < 95) {  // marks
      for (uint64_t i = 1 + rng.below(4); i > 0; --i) token += kMarks[rng.below(kMarks.size())];
    } else if (kind < 99) {  // code
      for (uint64_t i = rng.below(3); i > 0; --i) token += kMarks[rng.below(kMarks.size())];
      for (uint64_t i = 1 + rng.below(6); i > 0; --i) token += letter();
      for (uint64_t i = rng.below(3); i > 0; --i) token += kMarks[rng.below(kMarks.size())];
    } else {  // blanks
      token.append(1 + rng.below(80), ' ');
    }
  }
  return tokens;
}

struct Cost {
  std::vector<double> microseconds;
  double at(double quantile) {
    std::ranges::sort(microseconds);
    return microseconds[static_cast<size_t>(quantile *
                                            static_cast<double>(microseconds.size() - 1))];
  }
};

// Writes a text token by token, the longest first, and times each mask.
void write(const TokenGrammar& tokens, const std::shared_ptr<const TokenGrammar>& grammar,
           std::string_view text, const std::vector<int32_t>& by_text, Cost& cost) {
  const Vocabulary& vocabulary = tokens.vocabulary();
  Matcher matcher(grammar);
  Mask mask(static_cast<size_t>(vocabulary.mask_words()));
  while (!text.empty()) {
    const Stopwatch watch;
    matcher.fill_mask(mask);
    cost.microseconds.push_back(watch.seconds() * 1e6);
    // The longest token that begins the text.
    int32_t best = -1;
    for (size_t length = std::min<size_t>(text.size(), 16); best < 0; --length) {
      const std::string_view piece = text.substr(0, length);
      const auto at = std::ranges::lower_bound(by_text, piece, {},
                                               [&](int32_t id) { return vocabulary.text(id); });
      if (at != by_text.end() && vocabulary.text(*at) == piece) best = *at;
    }
    ASSERT_TRUE(is_set(mask, best)) << text;
    ASSERT_TRUE(matcher.push(best)) << text;
    matcher.commit();
    text.remove_prefix(vocabulary.text(best).size());
  }
  EXPECT_TRUE(matcher.is_complete());
}

TEST(Matcher, MasksOfALargeVocabularyAreQuick) {
  const Stopwatch building;
  const auto vocabulary = std::make_shared<const Vocabulary>(large_vocabulary());
  const double built = building.seconds();
  std::vector<int32_t> by_text(static_cast<size_t>(vocabulary->size()));
  for (size_t i = 0; i < by_text.size(); ++i) by_text[i] = static_cast<int32_t>(i);
  std::ranges::sort(by_text, {}, [&](int32_t id) { return vocabulary->text(id); });
  const auto masks = std::make_shared<MaskCache>(vocabulary);
  const auto grammar = compile(
      R"({"type":"object","properties":{"title":{"type":"string"},"pages":{"type":"integer"},
          "summary":{"type":"string","maxLength":400},"authors":{"type":"array","items":{"type":"object",
          "properties":{"name":{"type":"string"},"born":{"type":["integer","null"]}},"required":["name"]}},
          "extra":{}},"required":["title","pages","summary","authors"]})",
      masks);
  const std::string text =
      "{\"title\": \"the art of the state\", \"pages\": 312, \"summary\": \"how a thing that "
      "cannot "
      "go wrong, (it is said) 'goes wrong' and what was done: \\\"nothing\\\"; Ελλάς и мир\", "
      "\"authors\": [{\"name\": \"a. n. other\", \"born\": 1931}, {\"name\": \"some one\"},\n  "
      "{\"name\": \"else\", \"born\": null}], \"extra\": {\"a\": [1, 2.5, true, {\"b\": \"c\"}]}}";
  Cost cold, warm;
  write(*grammar, grammar, text, by_text, cold);
  for (int i = 0; i < 20; ++i) write(*grammar, grammar, text, by_text, warm);
  const MaskCache::Figures figures = masks->figures();
  std::printf(
      "%lld tokens in %zu nodes, built in %.0f ms\n"
      "first time: %zu masks, median %.1f us, mean of %lld state masks made %.0f us, worst %.0f "
      "us\n"
      "after that: median %.1f us, 90 %% %.1f us, 99 %% %.1f us; %.1f MB cached\n",
      static_cast<long long>(vocabulary->size()), vocabulary->nodes().size(), built * 1e3,
      cold.microseconds.size(), cold.at(0.5), static_cast<long long>(figures.made),
      figures.seconds * 1e6 / static_cast<double>(figures.made), cold.at(1), warm.at(0.5),
      warm.at(0.9), warm.at(0.99), static_cast<double>(figures.bytes) / 1e6);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(warm.at(0.5), 50);
#endif
}

}  // namespace
}  // namespace pewter::grammar
