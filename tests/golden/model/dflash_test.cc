// A tiny DFlash drafter against recorded outputs of an independent implementation: hidden and
// logits of blocks after 5, 37 and 101 tokens of the tiny mixture-of-experts model, with full
// layers, and with one of a window of 16. Reference path: within 1e-4 relative, row by row. Fast
// path: bf16 activations through two layers, within 3e-2 of the whole.
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/file.h"
#include "base/rng.h"
#include "engine/dflash_drafter.h"
#include "engine/engine.h"
#include "golden_model.h"
#include "support/counting_device.h"

namespace pewter {
namespace {

struct Case {
  std::string drafter, device;
  friend std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << c.drafter << " on " << c.device;
  }
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& device : golden_devices({"cpu-reference", "cpu"}))
    for (const char* drafter : {"nano-dflash", "nano-dflash-swa"}) all.push_back({drafter, device});
  return all;
}

// A directory with the drafter's config and the weights that both share.
std::string drafter_directory(const std::string& name) {
  namespace fs = std::filesystem;
  const fs::path directory = fs::path(testing::TempDir()) / str_cat(name, "-", getpid());
  fs::create_directories(directory);
  fs::copy_file(golden_data("nano-dflash/model.safetensors"), directory / "model.safetensors",
                fs::copy_options::overwrite_existing);
  fs::copy_file(golden_data(name + "/config.json"), directory / "config.json",
                fs::copy_options::overwrite_existing);
  return directory;
}

class NanoDflash : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const std::string why = why_unusable(GetParam().device); !why.empty()) GTEST_SKIP() << why;
    directory_ = drafter_directory(GetParam().drafter);
    golden_ = Golden::open(golden_data(GetParam().drafter) + "/golden.safetensors");
    target_ = Golden::open(golden_data("nano-moe/golden.safetensors"));
    ids_ = target_.ids("input_ids");
    const DflashConfig config = read_dflash_config(directory_).value();
    loaded_ = load_golden(golden_data("nano-moe"), GetParam().device,
                          {.chunk_rows = 192, .decode_rows = 8, .cache_tokens = 512}, /*threads=*/0,
                          LmHead::kAsStored, config.taps);
    model_ = DflashModel::load(directory_, device()).value();
    made_ = DflashDrafter::make(model_, *loaded_->runner, device(), *loaded_->backend.ops).value();
    sequence_ = loaded_->runner->open(192).value();
  }
  void TearDown() override {
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }
  Device& device() const { return *loaded_->backend.device; }
  DflashDrafter& drafter() { return static_cast<DflashDrafter&>(*made_); }
  bool reference() const { return GetParam().device == "cpu-reference"; }
  double distance(const TensorView& ours, const Golden::Floats& golden) const {
    return reference() ? worst_row(device(), ours, golden) : whole_distance(device(), ours, golden);
  }

  // Drafts for the text's first `known` tokens, of which all but the last are context.
  std::vector<int32_t> draft(int64_t known, int64_t most) {
    sequence_.length = known - 1;
    std::vector<int32_t> drafts;
    const DraftSequence sequence{.state = &sequence_,
                                 .tokens = std::span(ids_).first(static_cast<size_t>(known)),
                                 .most = most,
                                 .drafts = &drafts};
    drafter().draft_blocks(std::span(&sequence, 1));
    return drafts;
  }

  std::string directory_;
  Golden golden_, target_;
  std::vector<int32_t> ids_;
  std::unique_ptr<LoadedGolden> loaded_;
  std::shared_ptr<const DflashModel> model_;
  std::unique_ptr<Drafter> made_;
  SequenceState sequence_;
};
INSTANTIATE_TEST_SUITE_P(Drafters, NanoDflash, testing::ValuesIn(cases()), [](const auto& tested) {
  std::string name = tested.param.drafter + "_" + tested.param.device;
  std::ranges::replace(name, '-', '_');
  return name;
});

// The context is the recorded features; then what the target itself, read in chunks, gives.
TEST_P(NanoDflash, HiddenAndLogitsMatch) {
  const double bound = reference() ? 1e-4 : 3e-2;
  for (const int64_t place : {5, 37, 101}) {
    const auto count = static_cast<size_t>(place);
    for (size_t tap = 0; tap < 3; ++tap)
      for (int64_t row = 0; row < place; ++row)
        set_row(device(), drafter().taps()[tap], row,
                std::span(target_.floats(str_cat("hidden.", tap + 1)).row(row), 64));
    const SequenceRows rows{.sequence = &sequence_,
                            .tokens = std::span(ids_).first(count),
                            .logits = LogitsWanted::kNone};
    const int64_t from = 0;
    drafter().fill(Phase::kPrefill, std::span(&rows, 1), std::span(&from, 1));
    const std::vector<int32_t> drafts = draft(place + 1, 7);
    const double hidden =
        distance(drafter().hidden(8), golden_.floats(str_cat("draft.", place, ".hidden")));
    const auto& golden = golden_.floats(str_cat("draft.", place, ".logits"));
    const double logits = distance(loaded_->runner->logits_memory(7), golden);
    std::printf("%s on %s after %ld: hidden %.2e, logits %.2e\n", GetParam().drafter.c_str(),
                GetParam().device.c_str(), static_cast<long>(place), hidden, logits);
    EXPECT_LE(hidden, bound);
    EXPECT_LE(logits, bound);
    ASSERT_EQ(drafts.size(), 7u);
    for (int64_t row = 0; reference() && row < 7; ++row)
      EXPECT_EQ(drafts[static_cast<size_t>(row)],
                std::max_element(golden.row(row), golden.row(row) + 320) - golden.row(row));
  }
}

// A sliding layer that is said not to be causal sees its block as a full one does: with a window
// that leaves nothing out it is one, and with a short one it is not.
TEST_P(NanoDflash, SlidingLayersMaySeeTheirBlock) {
  if (GetParam().drafter != "nano-dflash") GTEST_SKIP() << "the same drafter";
  const auto hidden_of = [&](int64_t window, bool causal) {
    Json config = Json::parse(read_file(directory_ + "/config.json").value()).value();
    config.set("layer_types", Json::Array{"sliding_attention", "sliding_attention"});
    config.set("sliding_window", window);
    config.set("is_causal", causal);
    std::ofstream(directory_ + "/config.json") << config.dump();
    loaded_->runner->close(sequence_);
    model_ = DflashModel::load(directory_, device()).value();
    made_ = DflashDrafter::make(model_, *loaded_->runner, device(), *loaded_->backend.ops).value();
    sequence_ = loaded_->runner->open(192).value();
    loaded_->runner->prefill({.sequence = &sequence_, .tokens = std::span(ids_).first(101)});
    drafter().read(sequence_, std::span(ids_).first(101), 0);
    EXPECT_EQ(std::ssize(draft(102, 7)), 7);
    return distance(drafter().hidden(8), golden_.floats("draft.101.hidden"));
  };
  const double bound = reference() ? 2e-4 : 0.1;
  EXPECT_LE(hidden_of(512, false), bound);
  EXPECT_GT(hidden_of(16, false), 2 * bound);
  EXPECT_GT(hidden_of(512, true), 2 * bound);
}

// Context read in chunks and, after decode steps, from the accepted rows; wrong guesses between.
// The same where nothing was drafted on the way, and the rows waited.
TEST_P(NanoDflash, ContextGrowsStepByStep) {
  ModelRunner& runner = *loaded_->runner;
  const std::span<const int32_t> all(ids_);
  const auto last_drafts = [&](int64_t most) {
    runner.close(sequence_);
    sequence_ = runner.open(192).value();
    EXPECT_TRUE(drafter().begin(sequence_, 192));
    runner.prefill({.sequence = &sequence_, .tokens = all.first(64)});
    drafter().read(sequence_, all.first(90), 0);
    runner.prefill({.sequence = &sequence_, .tokens = all.subspan(64, 26)});
    drafter().read(sequence_, all.first(90), 64);
    DraftSequence sequence{.state = &sequence_, .first_row = 25, .rows = 1, .most = most};
    std::vector<int32_t> drafts;
    for (size_t known = 91; known <= 102;) {
      drafts.clear();
      sequence.tokens = all.first(known);
      sequence.drafts = &drafts;
      if (known == 102) sequence.most = 7;
      drafter().draft(std::span(&sequence, 1));
      EXPECT_EQ(std::ssize(drafts), sequence.most);
      if (known == 102) break;
      // Two or three rows are right, and then wrong ones.
      const size_t right = known == 97 ? 2 : 3;
      std::vector<int32_t> rows(all.begin() + static_cast<int64_t>(known) - 1,
                                all.begin() + static_cast<int64_t>(known + right) - 1);
      rows.insert(rows.end(), {3, 1, 4});
      const SequenceRows step{.sequence = &sequence_, .tokens = rows, .logits = LogitsWanted::kAll};
      runner.decode(std::span(&step, 1));
      runner.accept(sequence_, static_cast<int64_t>(right));
      sequence.first_row = 0;
      sequence.rows = static_cast<int64_t>(right);
      known += right;
    }
    const double hidden = distance(drafter().hidden(8), golden_.floats("draft.101.hidden"));
    std::printf("hidden %.2e\n", hidden);
    EXPECT_LE(hidden, reference() ? 2e-4 : 0.12);
    return drafts;
  };
  const std::vector<int32_t> waited = last_drafts(0);
  EXPECT_EQ(last_drafts(7), waited);
}

// Context and block are steps; nothing else is waited for than the block's guesses.
TEST_P(NanoDflash, WaitsOnceForABlock) {
  test::CountingDevice counting(device());
  const std::unique_ptr<Drafter> drafter =
      DflashDrafter::make(model_, *loaded_->runner, counting, *loaded_->backend.ops).value();
  const std::span<const int32_t> known = std::span(ids_).first(41);
  loaded_->runner->prefill({.sequence = &sequence_, .tokens = known.first(40)});
  drafter->read(sequence_, known.first(40), 0);
  std::vector<int32_t> drafts;
  const DraftSequence sequence{.state = &sequence_,
                               .tokens = known,
                               .first_row = 39,
                               .rows = 1,
                               .most = 7,
                               .drafts = &drafts};
  counting.take_events();
  drafter->draft(std::span(&sequence, 1));
  EXPECT_EQ(counting.take_events(), "ssw");
  EXPECT_EQ(drafts.size(), 7u);
}

struct Said {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  bool operator==(const Said&) const = default;
};
// Requests side by side; what each said, and the drafts of all.
std::vector<Said> run_together(Engine& engine, const std::vector<Request>& requests,
                               DraftFigures& figures) {
  std::vector<TokenStream> streams;
  for (const Request& request : requests) streams.push_back(engine.submit(request).value());
  std::vector<Said> said(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    StreamNews news;
    while (!news.end) {
      streams[i].wait(news);
      for (const StreamToken& token : news.tokens) {
        said[i].tokens.push_back(token.token);
        said[i].logprobs.push_back(token.logprob);
      }
    }
    figures += news.end->drafts;
  }
  return said;
}

// The whole of it in an engine, with neighbours that come and go, greedy and sampled.
TEST_P(NanoDflash, NeverChangesWhatIsSaid) {
  if (reference() && GetParam().drafter != "nano-dflash-swa") GTEST_SKIP() << "takes long";
  std::vector<Request> requests;
  for (size_t i = 0; i < 6; ++i) {
    Request request{.prompt = {ids_.begin() + 3, ids_.begin() + 20 + 13 * static_cast<int>(i)},
                    .max_tokens = 12 + 5 * static_cast<int64_t>(i)};
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
    request.sampling.seed = i;
    if (i == 3) request.sampling.frequency_penalty = 0.5f;
    requests.push_back(request);
  }
  const auto engine_of = [&](const DraftOptions& draft) {
    EngineOptions options{.runner = {.chunk_rows = 64, .max_sequences = 3, .cache_tokens = 640},
                          .draft = draft};
    if (draft.enabled()) options.dflash = model_;
    options.clock = [rng = Rng(4), now = 0.0]() mutable { return now += rng.uniform(); };
    return Engine::make(loaded_->model, device(), *loaded_->backend.ops, options);
  };
  DraftFigures none;
  const std::vector<Said> plain = run_together(*engine_of({}).value(), requests, none);
  EXPECT_EQ(none.drafts, 0);
  for (const DraftOptions& draft :
       {DraftOptions{.method = DraftMethod::kDflash, .tokens = 4},
        DraftOptions{.method = DraftMethod::kDflash, .tokens = 15},  // as many as a block has: 7
        DraftOptions{.method = DraftMethod::kAuto, .tokens = 7, .depth = DraftLength::kByCost}}) {
    const auto engine = engine_of(draft).value();
    EXPECT_EQ(engine->draft_options().method, DraftMethod::kDflash);
    EXPECT_EQ(engine->draft_options().tokens, std::min<int64_t>(draft.tokens, 7));
    DraftFigures figures;
    EXPECT_EQ(run_together(*engine, requests, figures), plain) << draft.tokens;
    EXPECT_GT(figures.drafts, 0);
  }
}

TEST_P(NanoDflash, NeedsItsDrafter) {
  const EngineOptions options{.runner = {.chunk_rows = 64, .cache_tokens = 64},
                              .draft = {.method = DraftMethod::kDflash, .tokens = 4}};
  const auto engine = Engine::make(loaded_->model, device(), *loaded_->backend.ops, options);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kNotFound);
}

// Fewer guesses than the block has room for; none at all.
TEST_P(NanoDflash, DraftsAsManyAsWanted) {
  ModelRunner& runner = *loaded_->runner;
  runner.prefill({.sequence = &sequence_, .tokens = std::span(ids_).first(40)});
  drafter().read(sequence_, std::span(ids_).first(40), 0);
  for (const int64_t most : {1, 4, 7}) EXPECT_EQ(std::ssize(draft(41, most)), most);
  EXPECT_TRUE(draft(41, 0).empty());
}

}  // namespace
}  // namespace pewter
