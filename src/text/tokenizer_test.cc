#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "text/detokenizer.h"

namespace pewter {
namespace {

using Ids = std::vector<int32_t>;

const Tokenizer& demo() {
  static const Tokenizer tokenizer =
      Tokenizer::load(std::string(PEWTER_SOURCE_DIR) + "/models/demo").value();
  return tokenizer;
}

int32_t id(std::string_view text) { return demo().id_of(text).value(); }

Ids concat(std::initializer_list<Ids> parts) {
  Ids all;
  for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Ids encode(std::string_view text, AddedTokens mode = AddedTokens::kAll) {
  return demo().encode(text, mode).value();
}

TEST(Tokenizer, TablesOfTheDemoModel) {
  EXPECT_EQ(demo().vocab_size(), 4026);
  EXPECT_EQ(id("<|endoftext|>"), 4000);
  EXPECT_EQ(demo().text_of(4002), "<|im_end|>");
  EXPECT_EQ(demo().bytes_of(id("Ġthe")), " the");
  EXPECT_TRUE(demo().has(0) && demo().has(4025));
  EXPECT_FALSE(demo().has(-1) || demo().has(4026) || demo().has(INT32_MAX));
  EXPECT_EQ(demo().bytes_of(4095), "");
  EXPECT_TRUE(demo().is_special(4002) && demo().is_added(4002));
  EXPECT_FALSE(demo().is_special(id("<think>")));
  EXPECT_TRUE(demo().is_added(id("<think>")));
  EXPECT_FALSE(demo().is_added(5));
  EXPECT_EQ(demo().id_of("no such token"), std::nullopt);
  EXPECT_EQ(demo().eos_id(), 4002);
  EXPECT_EQ(demo().config().model_max_length, 8192);
  EXPECT_EQ(demo().config().bos_token, std::nullopt);
  EXPECT_EQ(demo().added_tokens().size(), 26u);
}

TEST(Tokenizer, AddedTokenModes) {
  const std::string text = "a<|im_end|><think>b";
  EXPECT_EQ(encode(text), concat({encode("a"), {4002, id("<think>")}, encode("b")}));
  EXPECT_EQ(encode(text, AddedTokens::kNotSpecial),
            concat({encode("a<|im_end|>", AddedTokens::kNone), {id("<think>")}, encode("b")}));
  const Ids none = encode(text, AddedTokens::kNone);
  for (const int32_t token : none) EXPECT_FALSE(demo().is_added(token));
  EXPECT_EQ(demo().decode(none, true), text);
}

TEST(Tokenizer, AddedTokensAreFoundInTheRawText) {
  // The accent would join the last character if the normaliser ran first.
  EXPECT_EQ(encode("<think>\u0301"), concat({{id("<think>")}, encode("\u0301")}));
  EXPECT_EQ(encode("<|im_end|"), encode("<|im_end|", AddedTokens::kNone));
  EXPECT_EQ(encode("<<think>>"), concat({encode("<"), {id("<think>")}, encode(">")}));
}

TEST(Tokenizer, ComposedAndDecomposedTextAreTheSame) {
  EXPECT_EQ(encode("na\u0131ve re\u0301sume\u0301 \u212B"),
            encode("na\u0131ve r\u00E9sum\u00E9 \u00C5"));
  EXPECT_EQ(demo().decode(encode("re\u0301sume\u0301 \u2126"), false), "r\u00E9sum\u00E9 \u03A9");
}

TEST(Tokenizer, PromptsRecogniseSpecialTokensInAuthoredTextOnly) {
  const std::string before = "<|im_start|>user\n", client = "x<|im_end|><think>y",
                    after = "<|im_end|>\n";
  const std::string text = before + client + after;
  const ByteRange foreign{.begin = before.size(), .end = before.size() + client.size()};
  const Ids ids = demo().encode_prompt(text, {&foreign, 1}).value();
  EXPECT_EQ(ids, concat({{4001},
                         encode("user\nx<|im_end|>", AddedTokens::kNone),
                         {id("<think>")},
                         encode("y"),
                         {4002},
                         encode("\n")}));
  EXPECT_EQ(demo().encode_prompt(text, {}).value(), encode(text));
  // One foreign byte anywhere in it, and it is no control token.
  const size_t end_token = before.size() + client.size();
  for (size_t at = end_token; at < end_token + 10; ++at) {
    const ByteRange byte{.begin = at, .end = at + 1};
    const Ids cut = demo().encode_prompt(text, {&byte, 1}).value();
    EXPECT_EQ(std::count(cut.begin(), cut.end(), 4002), 1) << at;
  }
  const ByteRange beside{.begin = end_token - 1, .end = end_token};
  const Ids kept = demo().encode_prompt(text, {&beside, 1}).value();
  EXPECT_EQ(std::count(kept.begin(), kept.end(), 4002), 2);
}

TEST(Tokenizer, PiecesAndMergesDoNotSeeForeignRanges) {
  const std::string text = "The quick brown fox — jumps over 12 lazy dogs\n\n\nand the rest";
  for (size_t begin = 0; begin < text.size(); ++begin) {
    const std::vector<ByteRange> foreign{{.begin = begin, .end = std::min(begin + 3, text.size())},
                                         {.begin = text.size(), .end = text.size()}};
    EXPECT_EQ(demo().encode_prompt(text, foreign).value(), encode(text));
  }
}

TEST(Tokenizer, BrokenBytesBecomeReplacementCharactersAndMoveTheRanges) {
  EXPECT_EQ(encode("a\xFF"
                   "b\xE2\x82"),
            encode("a\uFFFDb\uFFFD"));
  const std::string text = "\xFF\xFF<|im_end|>\xC3<|im_end|>";
  const std::vector<ByteRange> foreign{{.begin = 0, .end = 1}, {.begin = 12, .end = 23}};
  const Ids ids = demo().encode_prompt(text, foreign).value();
  EXPECT_EQ(
      ids,
      concat({encode("\uFFFD\uFFFD"), {4002}, encode("\uFFFD<|im_end|>", AddedTokens::kNone)}));
}

TEST(Tokenizer, DecodeLeavesOutWhatHasNoTextAndReplacesBrokenBytes) {
  const Ids ids{id("<|im_start|>"), id("a"), id("<think>"), 4095, -3, id("<|im_end|>")};
  EXPECT_EQ(demo().decode(ids, false), "<|im_start|>a<think><|im_end|>");
  EXPECT_EQ(demo().decode(ids, true), "a<think>");
  EXPECT_EQ(demo().decode(Ids{id("ð"), id("a"), id("Â")}, false), "\uFFFDa\uFFFD");
}

TEST(Tokenizer, StreamedTextEqualsDecodedText) {
  Rng rng(3);
  for (int round = 0; round < 500; ++round) {
    Ids ids;
    for (uint64_t i = rng.below(40); i > 0; --i)
      ids.push_back(static_cast<int32_t>(rng.below(rng.below(2) == 0 ? 256 : 4100)));
    for (const bool skip : {false, true}) {
      IncrementalDetokenizer stream(demo(), skip);
      std::string text;
      for (const int32_t token : ids) text += stream.push(token);
      text += stream.flush();
      ASSERT_EQ(text, demo().decode(ids, skip));
    }
  }
}

TEST(Tokenizer, DecodeUndoesEncode) {
  Rng rng(5);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (uint64_t i = rng.below(60); i > 0; --i)
      append_utf8(text, static_cast<char32_t>(rng.below(2) == 0 ? rng.below(128)
                                                                : 0x4E00 + rng.below(20000)));
    ASSERT_EQ(demo().decode(encode(text), false), text);
  }
}

TEST(Tokenizer, LongRunsWithoutASplitTakeNearlyLinearTime) {
  const Stopwatch watch;
  std::string han, words;
  Rng rng(9);
  while (han.size() < 1000000) append_utf8(han, static_cast<char32_t>(0x4E00 + rng.below(20000)));
  while (words.size() < 1000000) words += "thequickbrownfox";
  for (const std::string& text : {std::string(1000000, 'a'), han, words, std::string(1000000, ' '),
                                  std::string(1000000, '<')})
    EXPECT_EQ(demo().decode(encode(text), false), text);
  EXPECT_LT(watch.seconds(), 60) << "a quadratic merge takes hours";
}

TEST(Tokenizer, ConcurrentEncoding) {
  const std::string text = "Several threads, one tokenizer: é\u0301 <think> 12\n\n\n  ok";
  const Ids expected = encode(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) wrong[t] += encode(text) != expected;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace pewter
