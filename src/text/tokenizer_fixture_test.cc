// Holds the tokenizer against what the Hugging Face tokenizers library recorded for some 24,000
// texts and 3,000 id sequences (tools/make_tokenizer_fixture.py describes the files).
#include <gtest/gtest.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/detokenizer.h"
#include "text/nfc.h"
#include "text/pre_split.h"
#include "text/tokenizer.h"

namespace pewter {
namespace {

using Ids = std::vector<int32_t>;

constexpr uint32_t kFullEncodeCases = 500, kFullDecodeCases = 200;
constexpr int kShownFailures = 10;

std::string source_path(std::string_view path) { return str_cat(PEWTER_SOURCE_DIR, "/", path); }

const Tokenizer& demo() {
  static const Tokenizer tokenizer = Tokenizer::load(source_path("models/demo")).value();
  return tokenizer;
}

uint64_t fnv1a(std::string_view bytes) {
  uint64_t value = 0xCBF29CE484222325u;
  for (const char byte : bytes) value = (value ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
  return value;
}

uint64_t id_hash(const Ids& ids) {
  std::string bytes;
  for (const int32_t id : ids)
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>((id >> shift) & 0xFF);
  return fnv1a(bytes);
}

// The fixture, read from front to back.
class Reader {
 public:
  Reader() : data_(read_file(source_path("tests/golden/text/tokenizer_cases.bin")).value()) {
    EXPECT_EQ(take(7), "PWTOK1\n");
  }
  std::string_view take(size_t size) {
    CHECK(at_ + size <= data_.size(), "fixture ends early");
    at_ += size;
    return std::string_view(data_).substr(at_ - size, size);
  }
  uint64_t fixed(size_t size) {
    uint64_t value = 0;
    const std::string_view bytes = take(size);
    for (size_t i = 0; i < size; ++i)
      value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const uint64_t byte = fixed(1);
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  }
  std::string_view text() { return take(varint()); }
  Ids ids() {
    Ids out(varint());
    for (int32_t& id : out) id = static_cast<int32_t>(varint());
    return out;
  }

 private:
  std::string data_;
  size_t at_ = 0;
};

// Each list follows the one before it, so there is one reading of the file for all tests.
struct Fixture {
  struct Encode {
    AddedTokens mode;
    std::string text;
    std::optional<Ids> ids;
    uint64_t hash;
    uint64_t piece_hash;
  };
  struct Decode {
    bool skip_special;
    Ids ids;
    std::optional<std::string> text;
    uint64_t hash;
  };
  struct Newer {
    char32_t code_point;
    uint64_t piece_hash;
  };
  std::vector<Encode> encode;
  std::vector<Decode> decode;
  std::vector<Newer> newer;

  Fixture() {
    Reader reader;
    const uint64_t encode_count = reader.fixed(4);
    for (uint64_t i = 0; i < encode_count; ++i) {
      const auto mode = static_cast<AddedTokens>(reader.fixed(1));
      std::string text(reader.text());
      std::optional<Ids> ids;
      if (i < kFullEncodeCases) ids = reader.ids();
      const uint64_t hash = ids ? id_hash(*ids) : reader.fixed(8);
      encode.push_back(
          {.mode = mode, .text = text, .ids = ids, .hash = hash, .piece_hash = reader.fixed(4)});
    }
    const uint64_t decode_count = reader.fixed(4);
    for (uint64_t i = 0; i < decode_count; ++i) {
      const bool skip = reader.fixed(1) != 0;
      Ids ids = reader.ids();
      std::optional<std::string> text;
      if (i < kFullDecodeCases) text = reader.text();
      const uint64_t hash = text ? fnv1a(*text) : reader.fixed(8);
      decode.push_back({.skip_special = skip, .ids = ids, .text = text, .hash = hash});
    }
    const uint64_t newer_count = reader.fixed(4);
    for (uint64_t i = 0; i < newer_count; ++i) {
      const auto code_point = static_cast<char32_t>(reader.varint());
      newer.push_back({.code_point = code_point, .piece_hash = reader.fixed(4)});
    }
  }
};

const Fixture& fixture() {
  static const Fixture instance;
  return instance;
}

std::string escaped(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

// The demo tokenizer's expression, run by itself: a vocabulary without merges for rare characters
// hides where they were split.
uint64_t piece_hash(std::string_view text) {
  static const PreSplit split = [] {
    const Json spec =
        Json::parse(read_file(source_path("models/demo/tokenizer.json")).value()).value();
    const Json& steps = *spec.find("pre_tokenizer")->find("pretokenizers");
    const Json& pattern = *steps.as_array()[0].find("pattern");
    return PreSplit::compile(pattern.find("Regex")->as_string()).value();
  }();
  static PreSplit::Matcher matcher(split);
  const std::string normalized = to_nfc(text).value();
  std::vector<size_t> ends;
  matcher.split(normalized, ends).value();
  std::string joined;
  size_t begin = 0;
  for (const size_t end : ends) {
    joined.append(normalized, begin, end - begin);
    joined += '\xFF';
    begin = end;
  }
  return fnv1a(joined) & 0xFFFFFFFFu;
}

TEST(TokenizerFixture, SplitsEveryTextAsTheReferenceDoes) {
  int failures = 0;
  for (const Fixture::Encode& c : fixture().encode) {
    if (piece_hash(c.text) == c.piece_hash) continue;
    if (++failures <= kShownFailures) ADD_FAILURE() << "text " << escaped(c.text);
  }
  EXPECT_EQ(failures, 0);
}

TEST(TokenizerFixture, EncodesEveryTextAsTheReferenceDoes) {
  ASSERT_GE(fixture().encode.size(), 20000u);
  int failures = 0;
  for (const Fixture::Encode& c : fixture().encode) {
    const Ids ids = demo().encode(c.text, c.mode).value();
    if (id_hash(ids) == c.hash) continue;
    if (++failures > kShownFailures) continue;
    if (c.ids) {
      EXPECT_EQ(ids, *c.ids);
    }
    ADD_FAILURE() << "mode " << static_cast<int>(c.mode) << ", text " << escaped(c.text);
  }
  EXPECT_EQ(failures, 0);
}

TEST(TokenizerFixture, DecodesAndStreamsAsTheReferenceDoes) {
  ASSERT_GE(fixture().decode.size(), 3000u);
  int failures = 0;
  for (const Fixture::Decode& c : fixture().decode) {
    IncrementalDetokenizer stream(demo(), c.skip_special);
    std::string streamed;
    for (const int32_t id : c.ids) streamed += stream.push(id);
    streamed += stream.flush();
    const std::string text = demo().decode(c.ids, c.skip_special);
    if (fnv1a(text) == c.hash && streamed == text) continue;
    if (++failures > kShownFailures) continue;
    if (c.text) {
      EXPECT_EQ(text, *c.text);
    }
    EXPECT_EQ(streamed, text);
    ADD_FAILURE() << "text " << escaped(text);
  }
  EXPECT_EQ(failures, 0);
}

// "105C0…105F3\n" for each run of neighbours.
std::string hex_ranges(const std::vector<char32_t>& code_points) {
  std::string out;
  const auto append_hex = [&](char32_t c) {
    std::array<char, 16> digits;
    const auto end =
        std::to_chars(digits.data(), digits.data() + digits.size(), static_cast<uint32_t>(c), 16);
    out.append(digits.data(), end.ptr);
  };
  for (size_t i = 0; i < code_points.size();) {
    size_t last = i;
    while (last + 1 < code_points.size() && code_points[last + 1] == code_points[last] + 1) ++last;
    append_hex(code_points[i]);
    if (last > i) {
      out += "-";
      append_hex(code_points[last]);
    }
    out += "\n";
    i = last + 1;
  }
  return out;
}

// The reference knows newer characters than PCRE2 and utf8proc do. Which ones come out differently
// is written down; a newer system library may only shorten the list.
TEST(TokenizerFixture, CharactersNewerThanUnicode14DifferAsRecorded) {
  ASSERT_GT(fixture().newer.size(), 0u);
  std::vector<char32_t> different;
  for (const Fixture::Newer& c : fixture().newer) {
    std::string character;
    append_utf8(character, c.code_point);
    const std::string text =
        str_cat("a", character, "a .", character, character, " e", character, "\u0301\u0323");
    if (piece_hash(text) != c.piece_hash) different.push_back(c.code_point);
  }
  std::array<char, 64> version{};
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version.data());
  std::string recorded =
      read_file(source_path("tests/golden/text/tokenizer_newer_differences.txt")).value();
  while (recorded.starts_with('#')) recorded.erase(0, recorded.find('\n') + 1);
  RecordProperty("different", static_cast<int>(different.size()));
  std::cout << different.size() << " of " << fixture().newer.size()
            << " newer characters differ; PCRE2 knows Unicode " << version.data() << "\n";
  if (std::string_view(version.data()).starts_with("14.")) {
    EXPECT_EQ(hex_ranges(different), recorded);
  }
}

// Small tokenizers with the options that the demo model leaves alone.
TEST(TokenizerFixture, OptionsWorkAsInTheReference) {
  const Json variants =
      Json::parse(read_file(source_path("tests/golden/text/tokenizer_options.json")).value())
          .value();
  ASSERT_EQ(variants.as_array().size(), 10u);
  for (const Json& variant : variants.as_array()) {
    SCOPED_TRACE(variant.find("name")->as_string());
    const Tokenizer tokenizer = Tokenizer::parse(variant.find("tokenizer")->dump(), {}).value();
    for (const Json& c : variant.find("cases")->as_array()) {
      const std::string& text = c.find("text")->as_string();
      Ids expected;
      for (const Json& id : c.find("ids")->as_array())
        expected.push_back(static_cast<int32_t>(id.as_integer()));
      EXPECT_EQ(tokenizer.encode(text).value(), expected) << text;
      EXPECT_EQ(tokenizer.decode(expected, false), c.find("decoded")->as_string()) << text;
    }
  }
}

}  // namespace
}  // namespace pewter
