// A long life: sequences join and leave a runner at random over thousands of decode steps, one to
// four rows a sequence, some rows rejected, some states folded. The scalar CPU path goes through
// the same steps, and its logits choose the tokens of both (teacher forcing): what separates them
// is rounding. Every sequence that leaves is then run alone, a row a step, and gets the same logits
// to the last bit, and so the same tokens.
//
// PEWTER_SOAK_STEPS sets the decode steps of each model.

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/rng.h"
#include "support/test_rig.h"

namespace pewter {
namespace {

using test::relative_difference;
using test::RigCase;
using test::Rows;
using test::TestRig;

constexpr int64_t kMostSequences = 6, kMostRows = 4, kMostPositions = 192;

struct Life {
  SequenceState state, teacher_state;
  std::vector<int32_t> prompt, text;  // text: what was accepted behind the prompt
  Rows logits;                        // of its rows
  int32_t next = 0;
  size_t goal = 0;
};

std::vector<RigCase> soak_cases() {
  std::vector<RigCase> cases = test::rig_cases();
  std::erase_if(cases, [](const RigCase& tested) { return tested.device == "cpu-reference"; });
  return cases;
}

class Soak : public test::RigTest {
 protected:
  void SetUp() override {
    RigTest::SetUp();
    if (IsSkipped()) return;
    const RunnerOptions options{.chunk_rows = 64,
                                .max_sequences = kMostSequences,
                                .decode_rows = kMostRows,
                                .cache_tokens = kMostSequences * kMostPositions};
    RigCase teacher = GetParam();
    teacher.device = teacher.device == "cuda" ? "cpu" : "cpu-reference";
    crowd_ = TestRig::make(GetParam(), options);
    teacher_ = TestRig::make(teacher, options);
    alone_ = TestRig::make(GetParam(), {.chunk_rows = 64, .cache_tokens = kMostPositions});
  }

  int64_t below(int64_t limit) {
    return static_cast<int64_t>(rng_.below(static_cast<uint64_t>(limit)));
  }
  bool chance(double p) { return rng_.uniform(0, 1) < p; }

  // One of the teacher's four likeliest: random models soon repeat themselves otherwise.
  int32_t choose(const std::vector<float>& logits) {
    std::vector<int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    const int64_t rank = below(4);
    std::nth_element(ids.begin(), ids.begin() + rank, ids.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    return ids[static_cast<size_t>(rank)];
  }

  void join() {
    Life& life = lives_.emplace_back();
    life.prompt = tokens(1 + below(90), ++joined_);
    life.goal = static_cast<size_t>(1 + below(kMostPositions - 90 - 2 * kMostRows));
    life.state = crowd_->open(kMostPositions);
    life.teacher_state = teacher_->open(kMostPositions);
    crowd_->prefill(life.state, life.prompt);
    life.next = choose(teacher_->prefill(life.teacher_state, life.prompt));
  }

  // One decode step of most of the sequences.
  void step() {
    std::vector<Life*> members;
    for (Life& life : lives_)
      if (chance(0.9)) members.push_back(&life);
    if (members.empty()) members.push_back(&lives_.front());
    std::vector<std::vector<int32_t>> drafts;
    std::vector<SequenceRows> rows, teacher_rows;
    for (const Life* life : members) {
      drafts.push_back(tokens(chance(0.4) ? 1 + below(kMostRows) : 1, rng_.below(1u << 30)));
      drafts.back().front() = life->next;
    }
    for (size_t i = 0; i < members.size(); ++i) {
      const SequenceRows wanted{.tokens = drafts[i], .logits = LogitsWanted::kAll};
      rows.push_back(wanted);
      rows.back().sequence = &members[i]->state;
      teacher_rows.push_back(wanted);
      teacher_rows.back().sequence = &members[i]->teacher_state;
    }
    Rows have = crowd_->decode(rows);
    const Rows want = teacher_->decode(teacher_rows);
    size_t row = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      Life& life = *members[i];
      const auto count = static_cast<int64_t>(drafts[i].size()), accepted = 1 + below(count);
      for (int64_t r = 0; r < accepted; ++r) {
        const size_t at = row + static_cast<size_t>(r);
        differences_.push_back(relative_difference(want[at], have[at]));
        life.text.push_back(drafts[i][static_cast<size_t>(r)]);
        life.logits.push_back(std::move(have[at]));
      }
      life.next = choose(want[row + static_cast<size_t>(accepted) - 1]);
      row += static_cast<size_t>(count);
      crowd_->runner->accept(life.state, accepted);
      teacher_->runner->accept(life.teacher_state, accepted);
      if (chance(0.05)) crowd_->runner->fold(life.state);
    }
  }

  void leave(Life& life) {
    SequenceState state = alone_->open(kMostPositions);
    alone_->prefill(state, life.prompt);
    const Rows want = alone_->steps(state, life.text);
    size_t first = 0;
    while (first < want.size() && want[first] == life.logits[first]) ++first;
    EXPECT_EQ(first, want.size()) << "sequence of " << life.prompt.size() << " + "
                                  << life.text.size() << " tokens, joined as number " << joined_;
    alone_->runner->close(state);
    crowd_->runner->close(life.state);
    teacher_->runner->close(life.teacher_state);
  }

  std::unique_ptr<TestRig> crowd_, teacher_, alone_;
  std::vector<Life> lives_;
  std::vector<double> differences_;
  Rng rng_{17};
  uint64_t joined_ = 0;
};

TEST_P(Soak, EveryoneLivesAsAlone) {
  const char* const given = std::getenv("PEWTER_SOAK_STEPS");
  const int64_t steps = given != nullptr              ? std::strtoll(given, nullptr, 10)
                        : GetParam().device == "cuda" ? 2500
                                                      : 40;
  ASSERT_GT(steps, 0) << "PEWTER_SOAK_STEPS=" << given;
  lives_.reserve(kMostSequences);  // a step's states keep their places
  for (int64_t i = 0; i < steps && !HasFailure(); ++i) {
    if (lives_.empty() || (lives_.size() < kMostSequences && chance(0.2))) join();
    step();
    for (size_t l = lives_.size(); l-- > 0;)
      if (lives_[l].text.size() >= lives_[l].goal || chance(0.005)) {
        leave(lives_[l]);
        lives_.erase(lives_.begin() + static_cast<ptrdiff_t>(l));
      }
  }
  for (Life& life : lives_) leave(life);
  EXPECT_EQ(crowd_->runner->pool().kv.free_pages(), crowd_->runner->pool().kv.pages());

  std::ranges::sort(differences_);
  const auto part = [this](double share) {
    return differences_[static_cast<size_t>(share * static_cast<double>(differences_.size() - 1))];
  };
  std::printf("%zu rows of %llu sequences: differences %.1e median, %.1e of 90 %%, %.1e of 99 %%\n",
              differences_.size(), static_cast<unsigned long long>(joined_), part(0.5), part(0.9),
              part(0.99));
  // These models are random: a row whose expert was a near tie, or that came after one, may differ
  // by more. Measured for the fast path against the scalar one: bf16 0.07 and 0.25, int4 (inputs in
  // 8 bits) 0.34 and 0.79; for the GPU against the fast path 0.06 and 0.12 of the dense model, 0.12
  // and 0.56 of the one with experts, where both sides round; rows that have nothing in common
  // differ by about 3.
  const bool codes = GetParam().formats.experts == WeightFormat::kInt4Group128;
  const bool both_round = GetParam().device == "cuda" && GetParam().config.is_moe();
  EXPECT_LE(part(0.5), codes ? 0.5 : both_round ? 0.2 : 0.1);
  EXPECT_LE(part(0.9), codes ? 1.2 : both_round ? 0.8 : 0.4);
}
INSTANTIATE_TEST_SUITE_P(Backends, Soak, testing::ValuesIn(soak_cases()), test::kRigName);

}  // namespace
}  // namespace pewter
