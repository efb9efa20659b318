// Constrained answers: what is said is a text of the grammar or the beginning of one, whatever is
// drafted and whoever is beside it; and the same text as without drafts.
#include <gmock/gmock.h>

#include "base/rng.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "support/crowd.h"

namespace pewter {
namespace {

using test::CrowdRig;
using test::Output;
using test::read_all;
using testing::HasSubstr;

constexpr int32_t kStop = 0;  // a control token

std::vector<std::string> token_texts(int64_t vocab_size) {
  std::vector<std::string> texts = {""};
  for (int b = 1; b < 256; ++b) texts.emplace_back(1, static_cast<char>(b));
  for (const char* text :
       {"{\"",  "\":",   "\": ", "\",", "\"}", "}}", "]}",    "],",      "},",  ", ",
        "true", "false", "null", "12",  "[[",  "]]", "\"a\"", "\"b\": ", "abc", "a\",\""})
    texts.emplace_back(text);
  texts.resize(static_cast<size_t>(vocab_size));
  return texts;
}

constexpr const char* kSchemas[] = {
    R"({"type":"object","properties":{"a":{"type":"string","maxLength":6},"b":{"type":"array",
        "items":{"enum":["a","abc",12]},"maxItems":4}},"required":["a","b"]})",
    R"({"type":"array","items":{"type":["boolean","null","integer"]},"minItems":3,"maxItems":9})",
    R"({"type":"integer","minimum":-50,"maximum":5000})",
    R"({"$defs":{"t":{"type":"array","items":{"$ref":"#/$defs/t"},"maxItems":2}},"$ref":"#/$defs/t"})",
    "true",
};

class Constraints : public test::RigTest {
 protected:
  void SetUp() override {
    RigTest::SetUp();
    const auto vocabulary =
        std::make_shared<const grammar::Vocabulary>(token_texts(GetParam().config.vocab_size));
    masks_ = std::make_shared<grammar::MaskCache>(vocabulary);
  }

  std::shared_ptr<const grammar::TokenGrammar> compile(const char* text) const {
    grammar::Grammar grammar;
    grammar.add("root", grammar::nothing());
    grammar::JsonRules rules(grammar);
    const Json schema = Json::parse(text).value();
    grammar.rules[0].body = grammar::add_schema(schema, {}, grammar, rules).value();
    return std::make_shared<const grammar::TokenGrammar>(
        grammar::Automaton::compile(std::move(grammar)).value(), masks_);
  }

  std::vector<Request> requests(int count, uint64_t seed) const {
    std::vector<Request> requests = test::crowd(GetParam(), count, seed);
    for (size_t i = 0; i < requests.size(); ++i) {
      Request& request = requests[i];
      request.stop_ids = {kStop};
      request.max_tokens = 40;
      request.min_tokens = 0;
      if (i % 5 != 4) request.grammar = compile(kSchemas[i % std::size(kSchemas)]);
      if (i % 7 == 3) request.ignore_stop = true;
    }
    return requests;
  }

  // What the tokens say, without a stop at the end.
  std::string text_of(const Output& output) const {
    std::string text;
    for (const int32_t token : output.tokens) text += masks_->vocabulary().text(token);
    return text;
  }

  void expect_follows(const Request& request, const Output& output) const {
    if (!request.grammar) return;
    const std::string text = text_of(output);
    if (output.completion.reason == FinishReason::kStop) {
      EXPECT_TRUE(grammar::matches(request.grammar->automaton(), text)) << text;
      EXPECT_TRUE(Json::parse(text)) << text;
      return;
    }
    ASSERT_EQ(output.completion.reason, FinishReason::kLength) << output.completion.error.message;
    grammar::Matcher matcher(request.grammar);
    for (const int32_t token : output.tokens) ASSERT_TRUE(matcher.push(token)) << text;
  }

  static EngineOptions options() {
    return {.runner = {.chunk_rows = 64, .max_sequences = 4, .cache_tokens = 1024},
            .max_context = 200};
  }

  std::shared_ptr<grammar::MaskCache> masks_;
};
INSTANTIATE_TEST_SUITE_P(Backends, Constraints, testing::ValuesIn(test::small_rig_cases()),
                         test::kRigName);

TEST_P(Constraints, HoldWithAndWithoutDraftsAndChangeNobodyElse) {
  const std::vector<Request> requests = this->requests(10, 9);
  std::vector<Output> plain;
  int ended = 0;
  {
    CrowdRig rig(GetParam(), options());
    for (const Request& request : requests) {
      plain.push_back(rig.run(request));
      expect_follows(request, plain.back());
      ended += request.grammar && plain.back().completion.reason == FinishReason::kStop;
    }
  }
  EXPECT_GT(ended, 3) << "answers that came to their end";
  // The fifth of requests without a grammar says what it says alone, in rows that followed one.
  const DraftOptions ways[] = {{},
                               {.method = DraftMethod::kSuffix, .tokens = 5, .shortest_match = 1},
                               {.method = DraftMethod::kMtp, .tokens = 3}};
  for (const DraftOptions& way : ways) {
    EngineOptions drafting = options();
    drafting.draft = way;
    CrowdRig rig(GetParam(), drafting);
    std::vector<TokenStream> streams;
    for (const Request& request : requests) streams.push_back(rig.engine->submit(request).value());
    for (size_t i = 0; i < requests.size(); ++i) {
      const Output output = read_all(streams[i]);
      EXPECT_EQ(output.tokens, plain[i].tokens) << i << ": " << text_of(output);
      EXPECT_EQ(output.logprobs, plain[i].logprobs) << i;
      EXPECT_EQ(output.completion.reason, plain[i].completion.reason) << i;
    }
    EXPECT_TRUE(test::becomes_idle(*rig.engine));
    EXPECT_TRUE(rig.returned_everything());
  }
}

// Guesses the text that will be said, to its end and beyond it, and then nonsense.
class KnowsTheText final : public Drafter {
 public:
  KnowsTheText(std::vector<int32_t> text, uint64_t seed) : text_(std::move(text)), rng_(seed) {}
  Status begin(const SequenceState&, int64_t) override { return {}; }
  void read(SequenceState&, std::span<const int32_t>, int64_t) override {}
  bool start(std::span<const DraftSequence> sequences) override {
    for (const DraftSequence& sequence : sequences)
      for (int64_t i = 0; i < sequence.most; ++i) {
        const size_t at = sequence.tokens.size() + static_cast<size_t>(i);
        sequence.drafts->push_back(at < text_.size() ? text_[at]
                                                     : static_cast<int32_t>(rng_.below(256)));
      }
    return false;
  }

 private:
  std::vector<int32_t> text_;
  Rng rng_;
};

TEST_P(Constraints, GuessesMayRunPastTheEnd) {
  for (const char* schema : kSchemas) {
    Request request{.prompt = tokens(12, 3),
                    .sampling = {.temperature = 1.5f, .seed = 5},
                    .max_tokens = 60,
                    .stop_ids = {kStop}};
    request.grammar = compile(schema);
    Output plain;
    {
      CrowdRig rig(GetParam(), options());
      plain = rig.run(request);
    }
    expect_follows(request, plain);
    std::vector<int32_t> text = request.prompt;
    text.insert(text.end(), plain.tokens.begin(), plain.tokens.end());
    EngineOptions drafting = options();
    drafting.draft = {.method = DraftMethod::kSuffix, .tokens = 7};
    drafting.drafter = std::make_shared<KnowsTheText>(text, 1);
    CrowdRig rig(GetParam(), drafting);
    const Output drafted = rig.run(request);
    EXPECT_EQ(drafted.tokens, plain.tokens) << text_of(plain);
    EXPECT_EQ(drafted.completion.reason, plain.completion.reason);
    if (plain.tokens.size() > 10) {
      EXPECT_GT(drafted.completion.drafts.accepted_tokens, 5);
    }
  }
}

TEST_P(Constraints, WithoutAStopTheTextStillEnds) {
  CrowdRig rig(GetParam(), options());
  Request request{.prompt = tokens(5, 4), .max_tokens = 50, .min_tokens = 50, .ignore_stop = true};
  request.grammar = compile(R"({"enum":["abc"]})");
  const Output output = rig.run(request);
  EXPECT_EQ(output.completion.reason, FinishReason::kStop);
  EXPECT_EQ(text_of(output), "\"abc\"");
}

TEST_P(Constraints, NeedTheModelsVocabulary) {
  CrowdRig rig(GetParam(), options());
  Request request{.prompt = tokens(5, 4), .max_tokens = 5};
  masks_ = std::make_shared<grammar::MaskCache>(
      std::make_shared<const grammar::Vocabulary>(std::vector<std::string>{"a", "b"}));
  request.grammar = compile("true");
  const auto refused = rig.engine->submit(request);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("grammar"));
}

}  // namespace
}  // namespace pewter
