// Drafting on the trained demo model: its MTP layer guesses as often right as the independent
// implementation's, and no way of drafting changes what is said.

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "engine/dflash_drafter.h"
#include "engine/engine.h"
#include "engine/mtp_drafter.h"
#include "golden_model.h"
#include "model/qwen35/draft_head.h"

namespace pewter {
namespace {

struct Prompt {
  std::string family;
  std::vector<int32_t> ids, answer;  // answer: the reference's greedy one
};

std::vector<int32_t> ids_of(const Json& array) {
  std::vector<int32_t> ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<int32_t>(id.as_integer()));
  return ids;
}

std::vector<Prompt> prompts(const std::string& format) {
  const Json file = Json::parse(read_file(golden_data("demo/answers.json")).value()).value();
  std::vector<Prompt> prompts;
  for (const Json& prompt : file.find("prompts")->as_array())
    prompts.push_back({.family = prompt.find("family")->as_string(),
                       .ids = ids_of(*prompt.find("prompt_ids")),
                       .answer = ids_of(*prompt.find("answers")->find(format))});
  return prompts;
}

// Everything, for every way of drafting; by default some of it.
bool all_prompts() { return std::getenv("PEWTER_ALL_PROMPTS") != nullptr; }

// Acceptance ------------------------------------------------------------------------------------

struct DemoOn {
  std::string format, device;
};
std::vector<DemoOn> checkpoints() {
  std::vector<DemoOn> all;
  for (const std::string& device : golden_devices({"cpu"}))
    for (const char* format : {"bf16", "hybrid"}) all.push_back({format, device});
  return all;
}

class DemoAcceptance : public testing::TestWithParam<DemoOn> {};
INSTANTIATE_TEST_SUITE_P(Formats, DemoAcceptance, testing::ValuesIn(checkpoints()),
                         [](const auto& tested) {
                           return tested.param.format + "_" + tested.param.device;
                         });

// Steps in which a model that says exactly `prompt.answer` says it with drafts of n tokens.
int64_t steps_of(LoadedGolden& loaded, Drafter& drafter, const Prompt& prompt, int64_t n) {
  ModelRunner& runner = *loaded.runner;
  std::vector<int32_t> text = prompt.ids;
  text.insert(text.end(), prompt.answer.begin(), prompt.answer.end());
  const std::span<const int32_t> all(text);
  const int64_t total = std::ssize(text), read = std::ssize(prompt.ids);
  SequenceState state = runner.open(total + n + 1).value();
  for (int64_t begin = 0; begin < read; begin += runner.options().chunk_rows) {
    const int64_t rows = std::min(runner.options().chunk_rows, read - begin);
    runner.prefill({.sequence = &state,
                    .tokens = all.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows))});
    drafter.read(state, all.first(static_cast<size_t>(read)), begin);
  }
  // The first token of the answer comes from the prompt.
  int64_t known = read + 1, steps = 0;
  DraftSequence sequence{
      .state = &state, .first_row = (read - 1) % runner.options().chunk_rows, .rows = 1, .most = n};
  while (known < total) {
    std::vector<int32_t> drafts;
    drafts.reserve(static_cast<size_t>(n));
    sequence.tokens = all.first(static_cast<size_t>(known));
    sequence.drafts = &drafts;
    drafter.draft(std::span(&sequence, 1));
    int64_t right = 0;
    while (right < std::ssize(drafts) && known + right < total &&
           drafts[static_cast<size_t>(right)] == text[static_cast<size_t>(known + right)])
      ++right;
    const int64_t step = std::min(right + 1, total - known);
    const SequenceRows rows{
        .sequence = &state,
        .tokens = all.subspan(static_cast<size_t>(known - 1), static_cast<size_t>(step))};
    runner.decode(std::span(&rows, 1));
    runner.accept(state, step);
    known += step;
    ++steps;
    sequence.first_row = 0;
    sequence.rows = step;
  }
  runner.close(state);
  return steps;
}

// Whether a method with drafts of these lengths takes the reference's steps, within 2 %, and in
// each family within 3 % or two steps.
void expect_steps(LoadedGolden& loaded, Drafter& drafter, const DemoOn& checkpoint,
                  const std::string& method, std::initializer_list<int64_t> lengths) {
  const auto& [format, device] = checkpoint;
  const std::string file = format == "hybrid"
                               ? golden_data("demo/acceptance-hybrid.json")
                               : shared_folder("goldens/demo/acceptance-" + format + ".json");
  const Json golden = Json::parse(read_file(file).value()).value();
  for (const int64_t n : lengths) {
    std::map<std::string, int64_t> steps;
    for (const Prompt& prompt : prompts(format))
      if (std::ssize(prompt.ids) + std::ssize(prompt.answer) <= 900)  // as the recipe counts
        steps[prompt.family] += steps_of(loaded, drafter, prompt, n);
    int64_t ours = 0, theirs = 0;
    for (const auto& [family, counted] : golden.as_object()) {
      const int64_t expected = counted.find(str_cat(method, n))->find("steps")->as_integer();
      EXPECT_LE(std::abs(static_cast<double>(steps[family] - expected)),
                std::max(2.0, 0.03 * static_cast<double>(expected)))
          << family << " with " << n << ": " << steps[family] << " steps, want " << expected;
      ours += steps[family];
      theirs += expected;
    }
    std::printf("%s on %s, %s%ld: %ld steps (reference %ld)\n", format.c_str(), device.c_str(),
                method.c_str(), static_cast<long>(n), static_cast<long>(ours),
                static_cast<long>(theirs));
    EXPECT_LE(std::abs(static_cast<double>(ours - theirs)), 0.02 * static_cast<double>(theirs));
  }
}

// Where the checkpoint is; empty: not here.
std::string directory_of(const std::string& format) {
  return format == "hybrid" ? bundled_demo() : shared_folder("models/demo-" + format);
}

TEST_P(DemoAcceptance, MtpIsAsOftenRightAsTheReference) {
  const auto& [format, device] = GetParam();
  if (const std::string why = why_unusable(device); !why.empty()) GTEST_SKIP() << why;
  const std::string directory = directory_of(format);
  if (directory.empty()) GTEST_SKIP() << "no shared material (set PEWTER_SHARED)";
  const auto loaded =
      load_golden(directory, device, {.chunk_rows = 512, .decode_rows = 4, .cache_tokens = 2048});
  const std::unique_ptr<Drafter> drafter =
      MtpDrafter::make(*loaded->runner, *loaded->backend.device, *loaded->backend.ops).value();
  expect_steps(*loaded, *drafter, GetParam(), "mtp", {1, 2, 3});
}

// A list of tokens with everything that the answers say, and a third of what they do not.
std::vector<int32_t> shortlist(const std::string& format, int64_t vocab_size) {
  std::vector<char> listed(static_cast<size_t>(vocab_size));
  for (size_t id = 0; id < listed.size(); id += 3) listed[id] = 1;
  for (const Prompt& prompt : prompts(format))
    for (const int32_t id : prompt.answer) listed[static_cast<size_t>(id)] = 1;
  std::vector<int32_t> ids;
  for (size_t id = 0; id < listed.size(); ++id)
    if (listed[id] != 0) ids.push_back(static_cast<int32_t>(id));
  return ids;
}

void set_shortlist(LoadedGolden& loaded, const std::string& directory, const std::string& format) {
  const Checkpoint checkpoint = Checkpoint::open(directory).value();
  loaded.model.weights.draft_head =
      load_draft_head(checkpoint, loaded.model.config, *loaded.backend.device,
                      shortlist(format, loaded.model.config.vocab_size))
          .value();
}

// Guesses among some tokens, with an int8 head of their own.
TEST_P(DemoAcceptance, AShortlistOfTokensIsAsGood) {
  const auto& [format, device] = GetParam();
  if (const std::string why = why_unusable(device); !why.empty()) GTEST_SKIP() << why;
  if (format != "hybrid") GTEST_SKIP() << "the head is the same";
  const auto loaded = load_golden(bundled_demo(), device,
                                  {.chunk_rows = 512, .decode_rows = 4, .cache_tokens = 2048});
  set_shortlist(*loaded, bundled_demo(), format);
  EXPECT_LT(loaded->model.weights.drafting_head().n, loaded->model.config.vocab_size / 2);
  const std::unique_ptr<Drafter> drafter =
      MtpDrafter::make(*loaded->runner, *loaded->backend.device, *loaded->backend.ops).value();
  expect_steps(*loaded, *drafter, GetParam(), "mtp", {3});
}

TEST_P(DemoAcceptance, DflashIsAsOftenRightAsTheReference) {
  const auto& [format, device] = GetParam();
  if (const std::string why = why_unusable(device); !why.empty()) GTEST_SKIP() << why;
  const std::string directory = directory_of(format), model = shared_folder("models/demo-dflash");
  if (directory.empty() || model.empty()) GTEST_SKIP() << "no shared material (set PEWTER_SHARED)";
  if (format != "hybrid" && !all_prompts()) GTEST_SKIP() << "runs with PEWTER_ALL_PROMPTS=1";
  const DflashConfig config = read_dflash_config(model).value();
  const auto loaded =
      load_golden(directory, device, {.chunk_rows = 512, .decode_rows = 12, .cache_tokens = 2048},
                  /*threads=*/0, LmHead::kAsStored, config.taps);
  Device& memory = *loaded->backend.device;
  const std::unique_ptr<Drafter> drafter =
      DflashDrafter::make(DflashModel::load(model, memory).value(), *loaded->runner, memory,
                          *loaded->backend.ops)
          .value();
  expect_steps(*loaded, *drafter, GetParam(), "dflash", {4, 11});
}

// Identity --------------------------------------------------------------------------------------

struct Output {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  DraftFigures drafts;
};

class DemoDrafts : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string why = why_unusable(GetParam()); !why.empty()) GTEST_SKIP() << why;
    const std::string drafter = shared_folder("models/demo-dflash");
    std::vector<int64_t> taps;
    if (!drafter.empty()) taps = read_dflash_config(drafter).value().taps;
    loaded_ = load_golden(bundled_demo(), GetParam(), {.chunk_rows = 64, .cache_tokens = 64},
                          /*threads=*/0, LmHead::kAsStored, taps);
    if (!drafter.empty()) dflash_ = DflashModel::load(drafter, *loaded_->backend.device).value();
    uint64_t index = 0;
    for (const Prompt& prompt : prompts("hybrid")) {
      Request request{.prompt = prompt.ids, .max_tokens = 64, .stop_ids = {prompt.answer.back()}};
      if (prompt.answer.size() == 96) request.stop_ids.clear();  // cut, not ended
      request.sampling.temperature = 0;
      requests_.push_back(request);
      if (index % 3 == 0) {  // and sampled
        request.sampling = {.temperature = 0.8f, .top_k = 50, .top_p = 0.95f, .seed = index};
        if (index % 2 == 0) request.sampling.presence_penalty = 0.5f;
        requests_.push_back(request);
      }
      ++index;
    }
  }

  // Every `every`th request, from one that differs from way to way.
  std::vector<size_t> chosen(size_t way, size_t every) const {
    std::vector<size_t> chosen;
    if (all_prompts()) every = 1;
    for (size_t i = way * 5 % every; i < requests_.size(); i += every) chosen.push_back(i);
    return chosen;
  }

  // Those requests, in an order that the seed decides; half of them joined by one that leaves
  // early.
  std::map<size_t, Output> run(const DraftOptions& draft, std::vector<size_t> order,
                               int64_t together, uint64_t seed) const {
    const auto engine =
        Engine::make(loaded_->model, *loaded_->backend.device, *loaded_->backend.ops,
                     {.runner = {.chunk_rows = 512,
                                 .max_sequences = together,
                                 .cache_tokens = 1536 * together},
                      .draft = draft,
                      .dflash = draft.method == DraftMethod::kDflash ? dflash_ : nullptr})
            .value();
    Rng rng(seed);
    for (size_t i = order.size(); together > 1 && i > 1; --i)
      std::swap(order[i - 1], order[rng.below(i)]);
    std::vector<std::pair<size_t, TokenStream>> streams;
    std::vector<TokenStream> leaving;
    std::map<size_t, Output> outputs;
    const auto read_first = [&] {
      Output& output = outputs[streams.front().first];
      StreamNews news;
      while (!news.end) {
        streams.front().second.wait(news);
        for (const StreamToken& token : news.tokens) {
          output.tokens.push_back(token.token);
          output.logprobs.push_back(token.logprob);
        }
        if (leaving.size() > 2) leaving.erase(leaving.begin());  // cancels it
      }
      output.drafts = news.end->drafts;
      streams.erase(streams.begin());
    };
    for (const size_t i : order) {
      if (together > 1 && rng.below(2) == 0)
        leaving.push_back(engine->submit(requests_[rng.below(requests_.size())]).value());
      streams.emplace_back(i, engine->submit(requests_[i]).value());
      if (std::ssize(streams) >= together) read_first();
    }
    while (!streams.empty()) read_first();
    return outputs;
  }

  // What requests say without drafts, alone.
  const Output& plain(size_t i) {
    if (!plain_.contains(i)) plain_.merge(run({}, {i}, 1, 0));
    return plain_.at(i);
  }
  void expect_unchanged(const DraftOptions& draft, const std::string& name, size_t way,
                        int64_t together);

  std::unique_ptr<LoadedGolden> loaded_;
  std::shared_ptr<const DflashModel> dflash_;  // null without the shared material
  std::vector<Request> requests_;
  std::map<size_t, Output> plain_;
};
INSTANTIATE_TEST_SUITE_P(Devices, DemoDrafts, testing::ValuesIn(golden_devices({"cpu"})));

void DemoDrafts::expect_unchanged(const DraftOptions& draft, const std::string& name, size_t way,
                                  int64_t together) {
  const std::vector<size_t> order = chosen(way, together == 1 ? 16 : 6);
  const std::map<size_t, Output> ours = run(draft, order, together, 7 + way);
  ASSERT_EQ(ours.size(), order.size());
  DraftFigures total;
  for (const auto& [i, output] : ours) {
    ASSERT_EQ(output.tokens, plain(i).tokens) << name << ", request " << i;
    ASSERT_EQ(output.logprobs, plain(i).logprobs) << name << ", request " << i;
    total += output.drafts;
  }
  if (!draft.enabled()) return;
  std::printf(
      "%s, %ld together: %ld drafts, mean acceptance length %.2f, %.0f %% of draft tokens\n",
      name.c_str(), static_cast<long>(together), static_cast<long>(total.drafts),
      total.mean_acceptance_length(), 100 * total.acceptance_rate());
  if (draft.depth == DraftLength::kByCost) return;  // as this machine's clock decides
  EXPECT_GT(total.mean_acceptance_length(), 1.3) << name;
}

TEST_P(DemoDrafts, NeverChangeWhatIsSaid) {
  std::vector<std::pair<std::string, DraftOptions>> ways = {
      {"plain", {}}, {"suffix8", {.method = DraftMethod::kSuffix, .tokens = 8}}};
  for (const int64_t tokens : {1, 2, 3, 4})
    ways.emplace_back(str_cat("mtp", tokens),
                      DraftOptions{.method = DraftMethod::kMtp, .tokens = tokens});
  for (const int64_t tokens : {4, 11})
    if (dflash_)
      ways.emplace_back(str_cat("dflash", tokens),
                        DraftOptions{.method = DraftMethod::kDflash, .tokens = tokens});
  ways.emplace_back(
      "auto",
      DraftOptions{.method = DraftMethod::kAuto, .tokens = 8, .depth = DraftLength::kByCost});
  for (size_t way = 0; way < ways.size(); ++way)
    for (const int64_t together : {1, 8}) {
      if (way == 0 && together == 1) continue;
      expect_unchanged(ways[way].second, ways[way].first, way, together);
    }
}

TEST_P(DemoDrafts, OfAShortlistNeverChangeWhatIsSaid) {
  set_shortlist(*loaded_, bundled_demo(), "hybrid");
  const DraftOptions mtp{.method = DraftMethod::kMtp, .tokens = 3},
      dflash{.method = DraftMethod::kDflash, .tokens = 6};
  for (const int64_t together : {1, 8}) {
    expect_unchanged(mtp, "mtp3 of a shortlist", 1, together);
    if (dflash_) expect_unchanged(dflash, "dflash6 of a shortlist", 2, together);
  }
}

}  // namespace
}  // namespace pewter
