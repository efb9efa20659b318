#include "checkpoint/safetensors_file.h"

#include <gmock/gmock.h>

#include "checkpoint/testing/temp_directory.h"

namespace pewter {
namespace {

using testing::HasSubstr;

// A file of a header and some zero bytes.
std::string file_bytes(const std::string& header, size_t data_bytes) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>((header.size() >> (8 * i)) & 255u);
  return bytes + header + std::string(data_bytes, '\0');
}

std::string faults_of(const std::string& bytes) {
  const TempDirectory directory;
  directory.write("x.safetensors", bytes);
  Findings findings;
  const auto file = SafetensorsFile::open(directory.path("x.safetensors"), findings);
  if (!file) return file.error().message;
  return findings.has_faults() ? findings.to_error("model").message : "";
}

// The worked example of docs/formats/plain.md.
TEST(SafetensorsFile, ReadsNamesShapesAndOffsets) {
  const TempDirectory directory;
  const std::string header =
      R"({"a":{"dtype":"I32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[1,3],"data_offsets":[8,14]}} )";
  ASSERT_EQ(header.size(), 112u);
  directory.write("x.safetensors", file_bytes(header, 14));
  Findings findings;
  const auto file = SafetensorsFile::open(directory.path("x.safetensors"), findings).value();
  EXPECT_FALSE(findings.has_faults());
  EXPECT_EQ(file.name(), "x.safetensors");
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[0].dtype, DType::kI32);
  EXPECT_EQ(file.tensors()[0].begin, 120);
  EXPECT_EQ(file.tensors()[1].shape, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(file.tensors()[1].begin, 128);
  EXPECT_EQ(file.tensors()[1].end, 134);
}

TEST(SafetensorsFile, KeepsTypesItDoesNotKnow) {
  EXPECT_EQ(
      faults_of(file_bytes(R"({"a":{"dtype":"F8_E8M0","shape":[3],"data_offsets":[0,3]}})", 3)),
      "");
}

TEST(SafetensorsFile, TakesScalarsAndEmptyTensors) {
  EXPECT_EQ(faults_of(file_bytes(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                                 R"("b":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]}})",
                                 4)),
            "");
}

struct HeaderRule {
  const char* name;
  std::string bytes;
  const char* message;
};
void PrintTo(const HeaderRule& rule, std::ostream* out) { *out << rule.name; }
class HeaderRules : public testing::TestWithParam<HeaderRule> {};

TEST_P(HeaderRules, IsAFaultThatNamesFileAndTensor) {
  const std::string message = faults_of(GetParam().bytes);
  EXPECT_THAT(message, HasSubstr(GetParam().message));
  EXPECT_THAT(message, HasSubstr("x.safetensors"));
}

std::string one_entry(const std::string& entry, size_t data_bytes = 8) {
  return file_bytes("{\"a\":" + entry + "}", data_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    All, HeaderRules,
    testing::Values(
        HeaderRule{"tiny", "abc", "3 bytes are no safetensors file"},
        HeaderRule{"short_header", file_bytes("{", 0), "header length 1 is not in 2"},
        HeaderRule{"long_header", std::string("\xff\xff\xff\xff\0\0\0\0{}", 10),
                   "header length 4294967295 is not in 2"},
        HeaderRule{"huge_header", std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10),
                   "header length 18446744073709551615"},
        HeaderRule{"header_beyond_file", std::string("\x40\0\0\0\0\0\0\0{}", 10),
                   "header of 64 bytes in a file of 10"},
        HeaderRule{"no_brace", file_bytes(" {}", 0), "does not begin with '{'"},
        HeaderRule{"no_json", file_bytes("{\"a\":}", 0), "header is not valid JSON"},
        HeaderRule{"bad_utf8", file_bytes("{\"\xff\":1}", 0), "header is not valid JSON"},
        HeaderRule{"twice",
                   file_bytes(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                              R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                              8),
                   "a: is twice in the header"},
        HeaderRule{"key_twice",
                   one_entry(R"({"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]})"),
                   "a: duplicate key \"dtype\""},
        HeaderRule{"no_object", one_entry("3"), "a: its header entry is no object"},
        HeaderRule{"no_shape", one_entry(R"({"dtype":"U8","data_offsets":[0,8]})"),
                   "a: its header entry lacks dtype, shape or data_offsets"},
        HeaderRule{"negative_size",
                   one_entry(R"({"dtype":"U8","shape":[-8],"data_offsets":[0,8]})"),
                   "a: shape has an entry that is no size"},
        HeaderRule{"overflow",
                   one_entry(R"({"dtype":"U8","shape":[4294967296,4294967296],)"
                             R"("data_offsets":[0,8]})"),
                   "a: shape [4294967296, 4294967296] overflows"},
        HeaderRule{"begin_after_end",
                   one_entry(R"({"dtype":"U8","shape":[8],"data_offsets":[8,0]})"),
                   "a: data_offsets [8, 0] are no range"},
        HeaderRule{"truncated", one_entry(R"({"dtype":"U8","shape":[9],"data_offsets":[0,9]})"),
                   "a: data_offsets [0, 9] reach beyond the file's 8 data bytes: truncated file?"},
        HeaderRule{"wrong_size", one_entry(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"),
                   "a: 8 bytes, but F32 [3] takes 12"},
        HeaderRule{"overlap",
                   file_bytes(R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},)"
                              R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                              8),
                   "b: overlaps a"},
        HeaderRule{"hole",
                   file_bytes(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                              R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                              8),
                   "b: 1 bytes before it belong to no tensor"},
        HeaderRule{"trailing", one_entry(R"({"dtype":"U8","shape":[8],"data_offsets":[0,8]})", 11),
                   "the last 3 bytes belong to no tensor"},
        HeaderRule{"metadata", file_bytes(R"({"__metadata__":{"format":3}})", 0),
                   "__metadata__: \"format\" is no text"}),
    [](const auto& tested) { return tested.param.name; });

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const TempDirectory directory;
  const std::vector<TensorData> tensors = {
      {"odd \"name\"", "BF16", {1, 3}, std::vector<std::byte>(6, std::byte{7})},
      {"b", "U8", {2}, std::vector<std::byte>(2)}};
  directory.write("x.safetensors", tensors);
  Findings findings;
  const auto file = SafetensorsFile::open(directory.path("x.safetensors"), findings).value();
  EXPECT_FALSE(findings.has_faults());
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "odd \"name\"");
  EXPECT_EQ(file.tensors()[0].begin % 8, 0);
}

}  // namespace
}  // namespace pewter
