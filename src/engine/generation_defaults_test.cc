#include "engine/generation_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pewter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<GenerationDefaults> parse(std::string_view text) {
  return GenerationDefaults::parse(Json::parse(text).value());
}

TEST(GenerationDefaults, ReadsWhatIsThere) {
  const GenerationDefaults defaults =
      parse(R"({"do_sample": true, "temperature": 0.5, "top_p": 0.25, "top_k": 20, "min_p": 0.125,
                "repetition_penalty": 1.5, "presence_penalty": 1.25, "frequency_penalty": -1,
                "eos_token_id": [5, 3], "bos_token_id": 9, "transformers_version": "5"})")
          .value();
  EXPECT_EQ(defaults.sampling.temperature, 0.5f);
  EXPECT_EQ(defaults.sampling.top_p, 0.25f);
  EXPECT_EQ(defaults.sampling.top_k, 20);
  EXPECT_EQ(defaults.sampling.min_p, 0.125f);
  EXPECT_EQ(defaults.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(defaults.sampling.presence_penalty, 1.25f);
  EXPECT_EQ(defaults.sampling.frequency_penalty, -1.0f);
  EXPECT_THAT(defaults.eos_token_ids, ElementsAre(5, 3));
}

TEST(GenerationDefaults, IsNeutralWhereTheFileIsSilent) {
  for (const char* text : {"{}", R"({"temperature": null, "eos_token_id": null})"}) {
    const GenerationDefaults defaults = parse(text).value();
    EXPECT_EQ(defaults.sampling.temperature, 1.0f);
    EXPECT_EQ(defaults.sampling.top_p, 1.0f);
    EXPECT_EQ(defaults.sampling.top_k, 0);
    EXPECT_TRUE(defaults.eos_token_ids.empty());
  }
}

TEST(GenerationDefaults, NotSamplingIsGreedy) {
  EXPECT_EQ(parse(R"({"do_sample": false, "temperature": 0.7})")->sampling.temperature, 0.0f);
}

TEST(GenerationDefaults, TakesOneEndIdAsWell) {
  EXPECT_THAT(parse(R"({"eos_token_id": 7})")->eos_token_ids, ElementsAre(7));
}

TEST(GenerationDefaults, NamesTheBrokenField) {
  for (const auto& [text, field] : std::vector<std::pair<const char*, const char*>>{
           {R"({"temperature": "hot"})", "temperature"},
           {R"({"temperature": -1})", "temperature"},
           {R"({"top_p": 0})", "top_p"},
           {R"({"top_k": 1.5})", "top_k"},
           {R"({"do_sample": 1})", "do_sample"},
           {R"({"eos_token_id": "end"})", "eos_token_id"},
           {R"({"eos_token_id": [1, -2]})", "eos_token_id"},
           {R"({"eos_token_id": 99999999999999999999999})", "eos_token_id"}}) {
    const Result<GenerationDefaults> result = parse(text);
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().code, ErrorCode::kCorruptData);
    EXPECT_THAT(result.error().message, HasSubstr(field)) << text;
  }
  EXPECT_FALSE(parse("[]"));
}

TEST(GenerationDefaults, AMissingFileIsNoError) {
  EXPECT_TRUE(GenerationDefaults::load("/nonexistent/directory"));
}

}  // namespace
}  // namespace pewter
