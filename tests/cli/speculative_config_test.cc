// --speculative-config and its plain flags: what they mean, and what is wrong with them.
#include "cli/speculative_config.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>

#include "cli/shared_flags.h"
#include "program.h"

namespace pewter::cli_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Result<SpeculativeConfig> parse(const char* json) {
  return parse_speculative_config(Json::parse(json).value());
}

ModelFlags flags(const char* config) {
  ModelFlags flags;
  flags.speculative_config = config;
  return flags;
}

std::string error_of(const ModelFlags& flags) {
  const Status status = flags.check();
  return status ? "" : status.error().message;
}

TEST(SpeculativeConfig, ReadsVllmsSpelling) {
  const SpeculativeConfig config =
      parse(R"({"method":"mtp","num_speculative_tokens":2,"attention_backend":"x"})").value();
  EXPECT_EQ(config.draft.method, DraftMethod::kMtp);
  EXPECT_EQ(config.draft.tokens, 2);
  EXPECT_THAT(config.warnings,
              ElementsAre("--speculative-config: attention_backend changes nothing here"));
  for (const char* name : {"qwen3_5_mtp", "qwen3_next_mtp"})
    EXPECT_EQ(draft_method(name).value(), DraftMethod::kMtp);
  const DraftOptions ngram = parse(R"({"method":"ngram","prompt_lookup_min":2})").value().draft;
  EXPECT_EQ(ngram.method, DraftMethod::kSuffix);
  EXPECT_EQ(ngram.shortest_match, 2);
  EXPECT_EQ(ngram.tokens, default_draft_tokens(DraftMethod::kSuffix, ngram.depth));
  EXPECT_FALSE(parse(R"({"method":"mtp","num_speculative_tokens":0})").value().draft.enabled());
  EXPECT_FALSE(parse(R"({"method":"none"})").value().draft.enabled());
  EXPECT_EQ(draft_method_name(DraftMethod::kSuffix), "suffix");
}

TEST(SpeculativeConfig, ErrorsNameTheKey) {
  const auto refused = [](const char* json, const char* what) {
    const auto config = parse(json);
    ASSERT_FALSE(config) << json;
    EXPECT_EQ(config.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(config.error().message, HasSubstr(what));
  };
  refused(R"({})", "method: is missing");
  refused(R"({"method":3})", "method");
  refused(R"({"method":"eagle"})", "method: \"eagle\" is no method that works here: want mtp");
  refused(R"({"method":"dflash"})", "method: dflash needs model, the directory");
  refused(R"({"method":"mtp","model":"x"})", "model: a drafter is for dflash or auto, not for mtp");
  refused(R"({"method":"mtp","num_speculative_tokens":16})", "num_speculative_tokens: 16");
  refused(R"({"method":"mtp","num_speculative_tokens":-1})", "num_speculative_tokens: -1");
  refused(R"({"method":"mtp","num_speculative_tokens":"3"})", "num_speculative_tokens");
  refused(R"({"method":"suffix","prompt_lookup_min":0})", "prompt_lookup_min: 0");
  refused(R"({"method":"suffix","prompt_lookup_min":65})", "prompt_lookup_min: 65");
}

TEST(SpeculativeConfig, BrokenJsonIsExplained) {
  EXPECT_THAT(error_of(flags("{“method”: “mtp”}")),
              HasSubstr("--speculative-config: not a JSON object; it has typographic quotes"));
  EXPECT_THAT(error_of(flags(R"({"method":)")), HasSubstr("it has no end"));
  EXPECT_THAT(error_of(flags("[1]")), HasSubstr("--speculative-config: not a JSON object"));
  EXPECT_THAT(error_of(flags("[1]")), Not(HasSubstr("no end")));
  EXPECT_THAT(error_of(flags(R"({"method":"x"})")), HasSubstr("--speculative-config: method"));
}

TEST(SpeculativeConfig, DepthIsPinnedOrChosen) {
  ModelFlags flags;
  flags.speculative_depth = "fixed:3";
  EXPECT_THAT(error_of(flags), HasSubstr("--speculative-depth: needs --speculate"));
  for (const bool as_json : {false, true}) {
    flags.speculate = as_json ? std::nullopt : std::optional<std::string>("suffix");
    flags.speculative_config =
        as_json ? std::optional<std::string>(R"({"method":"suffix"})") : std::nullopt;
    flags.speculative_depth = "fixed:3";
    EXPECT_EQ(flags.model_options().draft.tokens, 3);
    EXPECT_EQ(flags.model_options().draft.depth, DraftLength::kFixed);
    flags.speculative_depth = "auto";
    EXPECT_EQ(flags.model_options().draft.tokens, 8);
    EXPECT_EQ(flags.model_options().draft.depth, DraftLength::kByCost);
    for (const char* bad :
         {"fixed", "fixed:", "fixed:0", "fixed:16", "fixed:3x", "fixed:-1", "3"}) {
      flags.speculative_depth = bad;
      EXPECT_THAT(error_of(flags), HasSubstr(str_cat("--speculative-depth: \"", bad, "\" is no")));
    }
  }
}

TEST(SpeculativeConfig, PlainFlagsSayTheSame) {
  ModelFlags plain;
  EXPECT_FALSE(plain.model_options().draft.enabled());
  EXPECT_EQ(plain.model_options().mtp(), MtpUse::kSkip);
  plain.speculate = "mtp";
  EXPECT_EQ(plain.model_options().draft.tokens, 8);
  EXPECT_EQ(plain.model_options().draft.depth, DraftLength::kByCost);
  EXPECT_EQ(plain.model_options().mtp(), MtpUse::kRequired);
  plain.draft_tokens = 5;
  EXPECT_EQ(plain.model_options().draft.tokens, 5);
  EXPECT_EQ(plain.model_options().memory_options(true).runner.decode_rows, 6);
  EXPECT_EQ(error_of(plain), "");
  plain.draft_tokens = 16;
  EXPECT_THAT(error_of(plain), HasSubstr("--draft-tokens: 16 is outside [1, 15]"));
  plain.draft_tokens = 5;
  plain.speculative_depth = "fixed:4";
  EXPECT_THAT(error_of(plain), HasSubstr("--speculative-depth: fixed:k says how many"));
  plain.speculative_depth.reset();
  plain.speculate = "auto";
  EXPECT_EQ(plain.model_options().mtp(), MtpUse::kWhenPresent);
  plain.draft_model = "folder";
  EXPECT_EQ(error_of(plain), "");
  EXPECT_EQ(plain.model_options().drafter, "folder");
  EXPECT_EQ(plain.model_options().mtp(), MtpUse::kSkip);
  plain.speculate = "mtp";
  EXPECT_THAT(error_of(plain), HasSubstr("--draft-model: a drafter is for dflash"));
  plain.speculate = "dflash";
  EXPECT_EQ(error_of(plain), "");
  plain.draft_model.reset();
  EXPECT_THAT(error_of(plain), HasSubstr("--speculate: dflash needs --draft-model"));
  plain.speculate = "fast";
  EXPECT_THAT(error_of(plain), HasSubstr("--speculate: \"fast\""));
  plain.speculate.reset();
  EXPECT_THAT(error_of(plain), HasSubstr("--draft-tokens: needs --speculate"));
  plain.speculative_config = R"({"method":"mtp"})";
  EXPECT_THAT(error_of(plain), HasSubstr("excludes --draft-tokens"));
}

// How many tokens, or a file of them; not without a drafter that has a head.
TEST(DraftVocabulary, IsANumberOrAFile) {
  EXPECT_EQ(parse_draft_vocabulary("32768")->rows, 32768);
  EXPECT_EQ(parse_draft_vocabulary("ids.txt")->file, "ids.txt");
  EXPECT_FALSE(parse_draft_vocabulary("0"));
  ModelFlags flags;
  flags.draft_head_rows = "100";
  EXPECT_THAT(error_of(flags), HasSubstr("--draft-head-rows: is for drafters that run a model"));
  flags.speculate = "suffix";
  EXPECT_THAT(error_of(flags), HasSubstr("--draft-head-rows: is for drafters that run a model"));
  flags.speculate = "mtp";
  EXPECT_EQ(error_of(flags), "");
  EXPECT_EQ(flags.model_options().draft_vocabulary.rows, 100);
  flags.draft_head_rows = "-3";
  EXPECT_THAT(error_of(flags), HasSubstr("--draft-head-rows: -3 is not positive"));
}

TEST(DraftVocabulary, HasControlTokensAndTheLowestIds) {
  const Tokenizer tokenizer = Tokenizer::load(demo_model()).value();
  const int64_t limit = tokenizer.vocab_size();
  const auto ids = draft_vocabulary_ids({.rows = 300}, tokenizer, limit).value();
  ASSERT_EQ(ids.size(), 300u);
  EXPECT_TRUE(std::ranges::is_sorted(ids));
  EXPECT_EQ(ids.front(), 0);
  EXPECT_TRUE(std::ranges::binary_search(ids, tokenizer.id_of("<|im_end|>").value()));
  for (const int32_t id : ids) EXPECT_TRUE(tokenizer.is_added(id) || id < 300) << id;
  EXPECT_TRUE(draft_vocabulary_ids({}, tokenizer, limit)->empty());
  EXPECT_TRUE(draft_vocabulary_ids({.rows = limit}, tokenizer, limit)->empty());
}

TEST(DraftVocabulary, ReadsAFile) {
  const Tokenizer tokenizer = Tokenizer::load(demo_model()).value();
  const std::string file = testing::TempDir() + "draft-ids.txt";
  const auto ids_of = [&](const char* text) {
    std::ofstream(file) << text;
    return draft_vocabulary_ids({.file = file}, tokenizer, 4000);
  };
  EXPECT_THAT(ids_of(" 17 3\n3999\n17").value(), testing::ElementsAre(3, 17, 3999));
  const auto refused = [&](const char* text, const char* why) {
    const auto ids = ids_of(text);
    ASSERT_FALSE(ids) << text;
    EXPECT_THAT(ids.error().message, HasSubstr(file + ": " + why));
  };
  refused("3 4000", "\"4000\" is no token id of this model, which has 4000");
  refused("-1", "\"-1\" is no token id");
  refused("7,8", "\"7,8\" is no token id");
  refused(" \n", "holds no token ids");
  EXPECT_FALSE(draft_vocabulary_ids({.file = "/nope"}, tokenizer, 4000));
}

}  // namespace
}  // namespace pewter::cli_test
