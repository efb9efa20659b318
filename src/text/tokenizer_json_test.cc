// What tokenizer.json and tokenizer_config.json may say, and what is refused by name.
#include "text/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"

namespace pewter {
namespace {

using Ids = std::vector<int32_t>;
using testing::HasSubstr;

std::string stand_in(int byte) {
  std::string text;
  append_byte_level(text, std::string(1, static_cast<char>(byte)));
  return text;
}

// 256 byte tokens (the byte is the id), "ab" 256 and "abc" 257; one added token, 300.
Json spec() {
  Json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab.set(stand_in(byte), byte);
  vocab.set("ab", 256);
  vocab.set("abc", 257);
  Json model;
  model.set("type", "BPE");
  model.set("vocab", vocab);
  model.set("merges", Json::parse(R"([["a","b"],["ab","c"]])").value());
  Json root;
  root.set("normalizer", Json::parse(R"({"type":"NFC"})").value());
  root.set("pre_tokenizer", Json::parse(R"({"type":"Sequence","pretokenizers":[
      {"type":"Split","pattern":{"Regex":"\\s+|\\S+"},"behavior":"Isolated","invert":false},
      {"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})")
                                .value());
  root.set("decoder", Json::parse(R"({"type":"ByteLevel"})").value());
  root.set("added_tokens", Json::parse(R"([{"id":300,"content":"<x>","special":true}])").value());
  root.set("model", model);
  return root;
}

Json& at(Json& root, std::initializer_list<std::string_view> path) {
  Json* node = &root;
  for (const std::string_view key : path)
    for (auto& [name, value] : node->as_object())
      if (name == key) {
        node = &value;
        break;
      }
  return *node;
}

// The spec with one member replaced.
Json with(std::initializer_list<std::string_view> path, std::string_view key,
          std::string_view value) {
  Json root = spec();
  at(root, path).set(key, Json::parse(value).value());
  return root;
}

Result<Tokenizer> parse(const Json& root, std::string_view config = {}) {
  return Tokenizer::parse(root.dump(), config);
}

std::string message(const Json& root, std::string_view config = {}) {
  const auto tokenizer = parse(root, config);
  return tokenizer ? "no error" : tokenizer.error().message;
}

TEST(TokenizerJson, ReadsBothSpellingsOfMerges) {
  const Ids merged{257, 256};
  EXPECT_EQ(parse(spec())->encode("abcab").value(), merged);
  EXPECT_EQ(parse(with({"model"}, "merges", R"(["#version: 0.2","a b","ab c"])"))
                ->encode("abcab")
                .value(),
            merged);
}

TEST(TokenizerJson, IdsMayLeaveGapsAndPartsMayBeAbsent) {
  const Tokenizer tokenizer = parse(spec()).value();
  EXPECT_EQ(tokenizer.vocab_size(), 301);
  EXPECT_FALSE(tokenizer.has(258) || tokenizer.has(299));
  EXPECT_TRUE(tokenizer.has(300));
  for (const char* key : {"normalizer", "added_tokens"})
    EXPECT_TRUE(parse(with({}, key, "null")).has_value()) << key;
  EXPECT_TRUE(parse(with({}, "post_processor", R"({"type":"ByteLevel"})")).has_value());
  EXPECT_TRUE(parse(with({"model"}, "unk_token", "null")).has_value());
  const Json bare = with({}, "pre_tokenizer",
                         R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})");
  EXPECT_EQ(parse(bare)->encode("abc ab").value(), (Ids{257, 32, 256}));
}

// Such tokens are looked for after the normaliser, which may have moved the foreign ranges.
TEST(TokenizerJson, NormalizedSpecialTokensRespectForeignRanges) {
  const Tokenizer tokenizer =
      parse(with({}, "added_tokens",
                 R"([{"id":300,"content":"<x>","special":true,"normalized":true},
                     {"id":301,"content":"<y>","special":true,"normalized":false}])"))
          .value();
  const auto encode = [&](const std::string& text, const std::string& foreign) {
    const size_t begin = text.find(foreign);
    const ByteRange range{.begin = begin, .end = begin + foreign.size()};
    return tokenizer.encode_prompt(text, {&range, 1}).value();
  };
  const Ids plain{'<', 'x', '>'};
  EXPECT_EQ(encode("<y><x>!", "!"), (Ids{301, 300, '!'}));
  EXPECT_EQ(encode("<y><x>!", "<x>!"), (Ids{301, '<', 'x', '>', '!'}));
  EXPECT_EQ(encode("<y><x>!", "x"), (Ids{301, '<', 'x', '>', '!'}));
  EXPECT_EQ(encode("!<y><x>", "!"), (Ids{'!', 301, 300}));
  EXPECT_EQ(tokenizer.encode("<x>", AddedTokens::kNotSpecial).value(), plain);
  // Composition moves bytes: with any foreign byte between two raw tokens, none is recognised.
  EXPECT_EQ(encode("<x>e\u0301<y>?", "?"), (Ids{300, 0xC3, 0xA9, 301, '?'}));
  EXPECT_EQ(encode("<x>e\u0301<y>", "e"), (Ids{'<', 'x', '>', 0xC3, 0xA9, 301}));
}

TEST(TokenizerJson, RefusesOtherKindsByName) {
  struct Case {
    std::initializer_list<std::string_view> path;
    const char* key;
    const char* value;
    const char* expected;
  };
  for (const Case& c : std::initializer_list<Case>{
           {{}, "normalizer", R"({"type":"NFKC"})", "normalizer.type: \"NFKC\""},
           {{},
            "normalizer",
            R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]})",
            "normalizer.type: \"Lowercase\""},
           {{}, "pre_tokenizer", "null", "pre_tokenizer: null"},
           {{}, "pre_tokenizer", R"({"type":"Metaspace"})", "pre_tokenizer.type: \"Metaspace\""},
           {{}, "pre_tokenizer", R"({"type":"ByteLevel"})", "add_prefix_space: true"},
           {{},
            "pre_tokenizer",
            R"({"type":"ByteLevel","add_prefix_space":false})",
            "use_regex: true"},
           {{},
            "pre_tokenizer",
            R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Removed"})",
            "pre_tokenizer.behavior: \"Removed\""},
           {{},
            "pre_tokenizer",
            R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Isolated","invert":true})",
            "pre_tokenizer.invert"},
           {{},
            "pre_tokenizer",
            R"({"type":"Split","pattern":{"String":"a"},"behavior":"Isolated"})",
            "pre_tokenizer.pattern"},
           {{},
            "pre_tokenizer",
            R"({"type":"Split","pattern":{"Regex":"a("},"behavior":"Isolated"})",
            "pre_tokenizer.pattern.Regex: regular expression"},
           {{},
            "pre_tokenizer",
            R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel","add_prefix_space":false,
                "use_regex":false},{"type":"Split"}]})",
            "pre_tokenizer: a step after ByteLevel"},
           {{}, "decoder", R"({"type":"WordPiece"})", "decoder.type: \"WordPiece\""},
           {{}, "decoder", "null", "decoder: null"},
           {{}, "post_processor", R"({"type":"TemplateProcessing"})", "post_processor.type"},
           {{}, "truncation", R"({"max_length":4})", "truncation"},
           {{"model"}, "type", R"("WordLevel")", "model.type: \"WordLevel\""},
           {{"model"}, "dropout", "0.1", "model.dropout"},
           {{"model"}, "continuing_subword_prefix", R"("##")", "model.continuing_subword_prefix"},
           {{"model"}, "end_of_word_suffix", R"("</w>")", "model.end_of_word_suffix"}}) {
    const auto tokenizer = parse(with(c.path, c.key, c.value));
    ASSERT_FALSE(tokenizer.has_value()) << c.expected;
    EXPECT_THAT(tokenizer.error().message, HasSubstr(c.expected));
    EXPECT_THAT(tokenizer.error().message, HasSubstr("tokenizer.json: "));
  }
}

TEST(TokenizerJson, RefusesBrokenTables) {
  const auto merges = [](const char* value) { return message(with({"model"}, "merges", value)); };
  EXPECT_THAT(merges(R"([["a","b"],["b","c"]])"), HasSubstr("model.merges[1]: \"bc\" is not in"));
  EXPECT_THAT(merges(R"(["a zz"])"), HasSubstr("model.merges[0]: \"zz\" is not in"));
  EXPECT_THAT(merges(R"(["a b c"])"), HasSubstr("model.merges[0]: want two tokens"));
  EXPECT_THAT(merges(R"([["a"]])"), HasSubstr("model.merges[0]: want two tokens"));
  EXPECT_THAT(merges("[7]"), HasSubstr("model.merges[0]"));
  EXPECT_THAT(merges("{}"), HasSubstr("model.merges: want an array"));

  const auto vocab = [](const char* key, const char* value) {
    return message(with({"model", "vocab"}, key, value));
  };
  EXPECT_THAT(vocab("new", "97"), HasSubstr("token id 97 is given twice"));
  EXPECT_THAT(vocab("new", "-1"), HasSubstr("token id -1 is out of range"));
  EXPECT_THAT(vocab("new", "4294967296"), HasSubstr("out of range"));
  EXPECT_THAT(vocab("new", "18446744073709551615"), HasSubstr("model.vocab[\"new\"]"));
  EXPECT_THAT(vocab("new", "\"1\""), HasSubstr("model.vocab[\"new\"]: want a token id"));
  EXPECT_THAT(message(with({"model"}, "vocab", R"({"a":0})")), HasSubstr("no token for byte 0"));
  EXPECT_THAT(message(with({}, "model", "[]")), HasSubstr("model: want an object"));

  const auto added = [](const char* value) { return message(with({}, "added_tokens", value)); };
  EXPECT_THAT(added(R"([{"id":97,"content":"<y>"}])"), HasSubstr("added_tokens[0]: token id 97"));
  EXPECT_THAT(added(R"([{"id":301,"content":"ab"}])"), HasSubstr("token \"ab\" is given twice"));
  EXPECT_THAT(added(R"([{"id":301,"content":""}])"), HasSubstr("added_tokens[0].content: empty"));
  EXPECT_THAT(added(R"([{"content":"<y>"}])"), HasSubstr("added_tokens[0].id"));
  EXPECT_THAT(added(R"([{"id":4294967297,"content":"<y>"}])"), HasSubstr("added_tokens[0].id"));
  EXPECT_THAT(added(R"([{"id":301,"content":"<y>","lstrip":1}])"), HasSubstr("[0].lstrip"));
  EXPECT_THAT(added(R"([{"id":301,"content":"e\u0301","normalized":true}])"),
              HasSubstr("added token 301"));
  EXPECT_EQ(added(R"([{"id":256,"content":"ab"}])"), "no error") << "may be in both tables";
  EXPECT_THAT(added(R"([{"id":256,"content":"ab"},{"id":256,"content":"ab"}])"),
              HasSubstr("token id 256 is given twice"));

  const auto duplicate = Tokenizer::parse(R"({"model":{"vocab":{"a":1,"a":2},"merges":[]},)"
                                          R"("pre_tokenizer":{"type":"ByteLevel",)"
                                          R"("add_prefix_space":false,"use_regex":false},)"
                                          R"("decoder":{"type":"ByteLevel"}})",
                                          {});
  EXPECT_THAT(duplicate.error().message, HasSubstr("token \"a\" is given twice"));
  for (const char* text : {"", "[]", "{", "null", "{}", "{\"model\":{\"vocab\":{\"\xff\":0}}}"})
    EXPECT_FALSE(Tokenizer::parse(text, {}).has_value()) << text;
}

TEST(TokenizerConfig, AddsTokensAndNamesEos) {
  const Tokenizer tokenizer = parse(spec(), R"({"eos_token":{"content":"<y>"},"bos_token":null,
      "pad_token":"<x>","model_max_length":1000000000000000019884624838656,
      "chat_template":[{"name":"default","template":"A"},{"name":"tool_use","template":"B"}],
      "added_tokens_decoder":{"302":{"content":"<y>","special":true,"normalized":false},
                              "300":{"content":"<x>","special":false}}})")
                                  .value();
  EXPECT_EQ(tokenizer.eos_id(), 302);
  EXPECT_EQ(tokenizer.vocab_size(), 303);
  EXPECT_EQ(tokenizer.encode("a<y>").value(), (Ids{97, 302}));
  EXPECT_TRUE(tokenizer.is_special(300)) << "tokenizer.json's flags win";
  EXPECT_EQ(tokenizer.config().pad_token, "<x>");
  EXPECT_EQ(tokenizer.config().model_max_length, std::nullopt) << "means no limit";
  ASSERT_EQ(tokenizer.config().chat_templates.size(), 2u);
  EXPECT_EQ(tokenizer.config().chat_templates[1].name, "tool_use");
  const auto single = parse_tokenizer_config(R"({"chat_template":"C","model_max_length":4096})");
  EXPECT_EQ(single->chat_templates[0].source, "C");
  EXPECT_EQ(single->chat_templates[0].name, "default");
  EXPECT_EQ(single->model_max_length, 4096);
}

TEST(TokenizerConfig, RefusesContradictions) {
  const auto config = [](const char* text) { return message(spec(), text); };
  EXPECT_THAT(config(R"({"added_tokens_decoder":{"300":{"content":"<z>"}}})"),
              HasSubstr("added_tokens_decoder.300: \"<z>\" is \"<x>\" in tokenizer.json"));
  EXPECT_THAT(config(R"({"added_tokens_decoder":{"97":{"content":"<z>"}}})"),
              HasSubstr("added_tokens_decoder.97: token id 97 is given twice"));
  EXPECT_THAT(config(R"({"added_tokens_decoder":{"1x":{"content":"<z>"}}})"),
              HasSubstr("added_tokens_decoder.1x: the key is no token id"));
  EXPECT_THAT(config(R"({"added_tokens_decoder":{"-1":{"content":"<z>"}}})"), HasSubstr("-1"));
  EXPECT_THAT(config(R"({"eos_token":"<none>"})"), HasSubstr("eos_token: there is no token"));
  EXPECT_THAT(config(R"({"eos_token":7})"), HasSubstr("eos_token: want a token"));
  EXPECT_THAT(config(R"({"model_max_length":"long"})"), HasSubstr("model_max_length"));
  EXPECT_THAT(config(R"({"chat_template":[{"name":"x"}]})"), HasSubstr("chat_template"));
  EXPECT_THAT(config("[]"), HasSubstr("tokenizer_config.json: want an object"));
}

TEST(TokenizerFiles, MissingFilesAreNamed) {
  const auto missing = Tokenizer::load("/nonexistent/model");
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("/nonexistent/model"));
  const std::string file = std::string(PEWTER_SOURCE_DIR) + "/models/demo/tokenizer.json";
  EXPECT_EQ(Tokenizer::load(file)->eos_id(), 4002) << "its neighbour is read too";
}

}  // namespace
}  // namespace pewter
