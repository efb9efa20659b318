// The trained demo model in every format against recorded outputs: per-token losses of 8 × 1,024
// held-out tokens, the last logits of a 700-token text, and greedy answers to 60 prompts. The
// bundled hybrid checkpoint always runs; the other formats when the shared material is at hand.

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "golden_model.h"

namespace pewter {
namespace {

struct Format {
  std::string name;    // as the goldens call it
  std::string folder;  // under shared models
  std::string device = "cpu";
  LmHead head = LmHead::kAsStored;

  std::string test_name() const {
    return str_cat(name, head == LmHead::kInt8 ? "_int8_head" : "",
                   device == "cpu" ? "" : "_" + device);
  }
  friend std::ostream& operator<<(std::ostream& out, const Format& f) {
    return out << f.test_name();
  }
};
std::vector<Format> formats() {
  std::vector<Format> all;
  for (const std::string& device : golden_devices({"cpu"}))
    for (const auto& [name, folder] : {std::pair{"bf16", "demo-bf16"},
                                       {"int4", "demo-int4-autoround"},
                                       {"fp8", "demo-fp8"},
                                       {"hybrid", "demo-hybrid"}})
      all.push_back({name, folder, device});
  for (const size_t i : {0u, 3u}) {  // bf16 and hybrid: what an int8 head costs
    all.push_back(all[i]);
    all.back().head = LmHead::kInt8;
  }
  return all;
}
const std::array kGoldenFormats = {"bf16", "int4", "fp8", "hybrid", "nvfp4"};

// How far the fast path may be: it rounds activations to bf16, and to int8 before int4 weights
// (docs/numerics.md). Per token, codes move a loss by about a thousandth; few of a long greedy
// answer's tokens are decided by less than that moves the logits, but some are.
struct Bounds {
  double mean_nll, token_nll, long_logits, near_tie;
  int equal_answers;
};
constexpr Bounds kPlain{3e-4, 1e-3, 1e-2, 0.1, 54};
constexpr Bounds kCodes{3e-4, 3e-3, 5e-2, 0.3, 48};
const Bounds& bounds_of(const Format& format) {
  const bool codes = format.head == LmHead::kInt8 ||
                     (format.device == "cpu" && (format.name == "int4" || format.name == "hybrid"));
  return codes ? kCodes : kPlain;
}

class Demo : public testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    if (const std::string why = why_unusable(GetParam().device); !why.empty()) GTEST_SKIP() << why;
    directory_ =
        GetParam().name == "hybrid" ? bundled_demo() : shared_folder("models/" + GetParam().folder);
    const std::string shared = shared_folder("goldens/demo/golden.safetensors");
    // The committed fixture has the hybrid's own tensors and every format's losses.
    golden_ = Golden::open(GetParam().name == "hybrid" || shared.empty()
                               ? golden_data("demo/golden.safetensors")
                               : shared);
    if (directory_.empty()) GTEST_SKIP() << "no " << GetParam().folder << " (set PEWTER_SHARED)";
  }
  std::unique_ptr<LoadedGolden> load() { return load(GetParam().device, GetParam().head); }
  std::unique_ptr<LoadedGolden> load(const std::string& device, LmHead head) {
    return load_golden(directory_, device,
                       {.chunk_rows = 512, .cache_tokens = 2048, .logits_rows = 512},
                       /*threads=*/0, head);
  }
  std::string directory_;
  Golden golden_;
};

// −log p of each next token of one text.
std::vector<double> losses(LoadedGolden& loaded, std::span<const int32_t> ids) {
  ModelRunner& runner = *loaded.runner;
  SequenceState sequence = runner.open(static_cast<int64_t>(ids.size())).value();
  std::vector<double> out;
  const auto chunk = static_cast<size_t>(runner.options().chunk_rows);
  for (size_t begin = 0; begin < ids.size(); begin += chunk) {
    const auto tokens = ids.subspan(begin, std::min(chunk, ids.size() - begin));
    runner.prefill({.sequence = &sequence, .tokens = tokens, .logits = LogitsWanted::kAll});
    for (size_t i = 0; i < tokens.size() && begin + i + 1 < ids.size(); ++i) {
      const std::vector<float> logits =
          row_floats(*loaded.backend.device, runner.logits(), static_cast<int64_t>(i));
      const float largest = *std::max_element(logits.begin(), logits.end());
      double total = 0;
      for (const float x : logits) total += std::exp(static_cast<double>(x) - largest);
      out.push_back(std::log(total) + largest - logits[static_cast<size_t>(ids[begin + i + 1])]);
    }
  }
  runner.close(sequence);
  return out;
}

double mean(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v;
  return sum / static_cast<double>(x.size());
}

double mean_difference(const std::vector<double>& x, const Golden::Floats& golden) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += std::abs(x[i] - golden.values[i]);
  return sum / static_cast<double>(x.size());
}

TEST_P(Demo, LossesMatchTheirFormat) {
  const auto loaded = load();
  const std::vector<int32_t>& ids = golden_.ids("nll.input_ids");
  std::vector<double> ours;
  for (size_t text = 0; text < 8; ++text) {
    const auto part = losses(*loaded, std::span(ids).subspan(text * 1024, 1024));
    ours.insert(ours.end(), part.begin(), part.end());
  }
  const auto& golden = golden_.floats(GetParam().name + ".nll");
  ASSERT_EQ(ours.size(), golden.values.size());
  const double golden_mean = mean(std::vector<double>(golden.values.begin(), golden.values.end()));
  const double own = mean_difference(ours, golden);
  std::printf("%s: mean NLL %.5f (reference %.5f), mean |difference| per token %.2e\n",
              GetParam().test_name().c_str(), mean(ours), golden_mean, own);
  EXPECT_LE(std::abs(mean(ours) - golden_mean), bounds_of(GetParam()).mean_nll);
  EXPECT_LE(own, bounds_of(GetParam()).token_nll);
  for (const std::string other : kGoldenFormats) {
    if (other == GetParam().name) continue;
    EXPECT_LT(own, mean_difference(ours, golden_.floats(other + ".nll"))) << other;
  }
}

TEST_P(Demo, LongTextLogitsMatch) {
  const auto loaded = load();
  const std::vector<int32_t>& ids = golden_.ids("long.input_ids");
  SequenceState sequence = loaded->runner->open(static_cast<int64_t>(ids.size())).value();
  loaded->runner->prefill(
      {.sequence = &sequence, .tokens = std::span(ids).first(512), .logits = LogitsWanted::kNone});
  loaded->runner->prefill(
      {.sequence = &sequence, .tokens = std::span(ids).subspan(512), .logits = LogitsWanted::kAll});
  const auto& golden = golden_.floats(GetParam().name + ".long.logits_tail");
  const int64_t first = static_cast<int64_t>(ids.size()) - 512 - golden.rows();
  const double worst =
      worst_row(*loaded->backend.device,
                loaded->runner->logits().slice(0, first, first + golden.rows()), golden);
  std::printf("%s: worst relative distance of the last %ld logits rows %.2e\n",
              GetParam().test_name().c_str(), static_cast<long>(golden.rows()), worst);
  EXPECT_LE(worst, bounds_of(GetParam()).long_logits);
}

std::vector<int32_t> ids_of(const Json& array) {
  std::vector<int32_t> ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<int32_t>(id.as_integer()));
  return ids;
}

// Greedy tokens after `prompt`, as many as the reference gave or until they part.
std::vector<int32_t> greedy(LoadedGolden& loaded, const std::vector<int32_t>& prompt,
                            size_t count) {
  ModelRunner& runner = *loaded.runner;
  SequenceState sequence = runner.open(static_cast<int64_t>(prompt.size() + count)).value();
  const auto chunk = static_cast<size_t>(runner.options().chunk_rows);
  for (size_t begin = 0; begin < prompt.size(); begin += chunk)
    runner.prefill(
        {.sequence = &sequence,
         .tokens = std::span(prompt).subspan(begin, std::min(chunk, prompt.size() - begin))});
  std::vector<int32_t> out;
  while (true) {
    const std::vector<float> logits = row_floats(*loaded.backend.device, runner.logits(), 0);
    out.push_back(
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    if (out.size() == count) break;
    const SequenceRows rows{.sequence = &sequence, .tokens = std::span(&out.back(), 1)};
    runner.decode(std::span(&rows, 1));
    runner.accept(sequence, 1);
  }
  runner.close(sequence);
  return out;
}

// How much the reference path prefers `expected` to `ours` after these tokens.
double reference_gap(LoadedGolden& loaded, const std::vector<int32_t>& tokens, int32_t expected,
                     int32_t ours) {
  ModelRunner& reference = *loaded.runner;
  SequenceState sequence = reference.open(static_cast<int64_t>(tokens.size())).value();
  const auto chunk = static_cast<size_t>(reference.options().chunk_rows);
  for (size_t begin = 0; begin < tokens.size(); begin += chunk)
    reference.prefill(
        {.sequence = &sequence,
         .tokens = std::span(tokens).subspan(begin, std::min(chunk, tokens.size() - begin))});
  reference.close(sequence);
  const std::vector<float> logits = row_floats(*loaded.backend.device, reference.logits(), 0);
  return std::abs(logits[static_cast<size_t>(expected)] - logits[static_cast<size_t>(ours)]);
}

TEST_P(Demo, GreedyAnswersMatchButForNearTies) {
  const auto loaded = load();
  std::unique_ptr<LoadedGolden> reference;  // loaded at the first difference
  const Json file = Json::parse(read_file(golden_data("demo/answers.json")).value()).value();
  int equal = 0;
  for (const Json& prompt : file.find("prompts")->as_array()) {
    const std::vector<int32_t> ids = ids_of(*prompt.find("prompt_ids"));
    const std::vector<int32_t> expected = ids_of(*prompt.find("answers")->find(GetParam().name));
    const std::vector<int32_t> ours = greedy(*loaded, ids, expected.size());
    const auto [mine, theirs] = std::mismatch(ours.begin(), ours.end(), expected.begin());
    if (mine == ours.end()) {
      ++equal;
      continue;
    }
    if (!reference) reference = load("cpu-reference", LmHead::kAsStored);
    std::vector<int32_t> tokens = ids;
    tokens.insert(tokens.end(), ours.begin(), mine);
    const double gap = reference_gap(*reference, tokens, *theirs, *mine);
    EXPECT_LE(gap, bounds_of(GetParam()).near_tie)
        << prompt.find("family")->as_string() << ", token " << (mine - ours.begin());
  }
  std::printf("%s: %d of 60 greedy answers equal\n", GetParam().test_name().c_str(), equal);
  EXPECT_GE(equal, bounds_of(GetParam()).equal_answers);
}

INSTANTIATE_TEST_SUITE_P(Formats, Demo, testing::ValuesIn(formats()),
                         [](const auto& chosen) { return chosen.param.test_name(); });

// The scalar reference on a short stretch: what the fast path's bounds rest on.
TEST(DemoReference, LossesMatch) {
  const Golden golden = Golden::open(golden_data("demo/golden.safetensors"));
  const auto loaded = load_golden(bundled_demo(), "cpu-reference",
                                  {.chunk_rows = 128, .cache_tokens = 128, .logits_rows = 128});
  const auto ours = losses(*loaded, std::span(golden.ids("nll.input_ids")).first(128));
  double worst = 0;
  for (size_t i = 0; i < ours.size(); ++i)
    worst = std::max(worst, std::abs(ours[i] - golden.floats("hybrid.nll").values[i]));
  std::printf("reference path: largest |difference| of a token's NLL %.2e\n", worst);
  EXPECT_LE(worst, 1e-4);
}

}  // namespace
}  // namespace pewter
