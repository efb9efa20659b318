// Input: tokenizer.json bytes, a zero byte, and a text. Loading must not crash on any file; on one
// that loads, encoding and decoding must keep their promises for any text. Inputs without a zero
// byte are texts for a tokenizer that loads, so that the second half is reached often.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace pewter {
namespace {

std::string small_tokenizer_json() {
  std::string vocab;
  for (int byte = 0; byte < 256; ++byte) {
    std::string stand_in, quoted;
    append_byte_level(stand_in, std::string(1, static_cast<char>(byte)));
    append_json_string(quoted, stand_in);
    vocab += str_cat(quoted, ":", byte, ",");
  }
  return str_cat(
      R"({"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[)",
      R"({"type":"Split","behavior":"Isolated","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|)",
      R"([^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|)",
      R"(\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},{"type":"ByteLevel","add_prefix_space":false,)",
      R"("use_regex":false}]},"decoder":{"type":"ByteLevel"},"added_tokens":[)",
      R"({"id":400,"content":"<x>","special":true,"normalized":false},)",
      R"({"id":401,"content":"<y","lstrip":true,"rstrip":true},)",
      R"({"id":402,"content":"<y>","single_word":true,"normalized":true}],"model":{"vocab":{)",
      vocab, R"("ab":256,"aba":257,"bb":258,"aa":259},"merges":["a b","ab a",["b","b"],"a a"]}})");
}

void check_text(const Tokenizer& tokenizer, std::string_view text) {
  for (const AddedTokens mode : {AddedTokens::kAll, AddedTokens::kNotSpecial, AddedTokens::kNone}) {
    const auto ids = tokenizer.encode(text, mode);
    if (!ids) continue;
    IncrementalDetokenizer stream(tokenizer, false);
    std::string streamed;
    for (const int32_t id : ids.value()) {
      CHECK(tokenizer.has(id), "encoded to an id without a token: ", id);
      CHECK(mode == AddedTokens::kAll || !tokenizer.is_special(id) || !tokenizer.is_added(id),
            "a special token came out of plain text");
      streamed += stream.push(id);
    }
    streamed += stream.flush();
    CHECK(is_valid_utf8(streamed), "invalid UTF-8");
    CHECK(streamed == tokenizer.decode(ids.value(), false), "stream and decode differ");
  }
  // Half of the text foreign: any border is allowed.
  const ByteRange foreign{.begin = text.size() / 2, .end = text.size()};
  const auto prompt = tokenizer.encode_prompt(text, {&foreign, 1});
  CHECK(prompt.has_value() == tokenizer.encode(text).has_value(), "one fails, the other does not");
}

}  // namespace
}  // namespace pewter

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pewter;
  static const Tokenizer small = Tokenizer::parse(small_tokenizer_json(), {}).value();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  if (zero == std::string_view::npos) {
    check_text(small, input);
    return 0;
  }
  const std::string_view text = input.substr(zero + 1);
  check_text(small, text);
  if (const auto tokenizer = Tokenizer::parse(input.substr(0, zero), {})) {
    check_text(tokenizer.value(), text);
  }
  (void)parse_tokenizer_config(input.substr(0, zero)).has_value();
  return 0;
}
