#include "engine/suffix_index.h"

#include <gmock/gmock.h>

#include "base/rng.h"
#include "engine/draft_figures.h"

namespace pewter {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Tokens = std::vector<int32_t>;

Tokens draft(SuffixIndex& index, const Tokens& text, int64_t most) {
  Tokens drafts;
  index.draft(text, most, drafts);
  return drafts;
}

Tokens draft(const Tokens& text, int64_t most, int64_t shortest) {
  SuffixIndex index;
  index.begin(static_cast<int64_t>(text.size()), shortest);
  return draft(index, text, most);
}

TEST(SuffixIndex, SaysWhatFollowedBefore) {
  EXPECT_THAT(draft({1, 2, 3, 4, 5, 9, 1, 2, 3}, 2, 2), ElementsAre(4, 5));
  // No more than the match is long.
  EXPECT_THAT(draft({1, 2, 3, 4, 5, 9, 1, 2, 3}, 15, 2), ElementsAre(4, 5, 9));
  EXPECT_THAT(draft({1, 2, 3, 4, 5, 9, 1, 2, 3}, 0, 2), IsEmpty());
}

TEST(SuffixIndex, PrefersTheLongestThenTheLatest) {
  EXPECT_THAT(draft({5, 1, 2, 7, 0, 1, 2, 8, 0, 5, 1, 2}, 1, 2), ElementsAre(7));
  EXPECT_THAT(draft({5, 1, 2, 7, 0, 1, 2, 8, 0, 6, 1, 2}, 1, 2), ElementsAre(8));
}

TEST(SuffixIndex, NeedsTheShortestMatch) {
  const Tokens text = {1, 2, 3, 4, 9, 2, 3};
  EXPECT_THAT(draft(text, 4, 2), ElementsAre(4, 9));
  EXPECT_THAT(draft(text, 4, 3), IsEmpty());
  EXPECT_THAT(draft({}, 4, 1), IsEmpty());
  EXPECT_THAT(draft({1}, 4, 1), IsEmpty());
  EXPECT_THAT(draft({1, 2}, 4, 3), IsEmpty());
  EXPECT_THAT(draft({1, 2, 3, 4}, 4, 1), IsEmpty());
}

TEST(SuffixIndex, GoesOnWithARepetition) {
  EXPECT_THAT(draft({7, 7, 7, 7, 7}, 4, 2), ElementsAre(7, 7, 7, 7));
  EXPECT_THAT(draft({1, 2, 3, 1, 2, 3, 1, 2, 3}, 5, 2), ElementsAre(1, 2, 3, 1, 2));
}

TEST(SuffixIndex, AppendsToWhatIsThere) {
  SuffixIndex index;
  index.begin(9, 2);
  Tokens rows = {3};
  index.draft(Tokens{3, 3, 3}, 2, rows);
  EXPECT_THAT(rows, ElementsAre(3, 3, 3));
}

// Against the definition, on texts of few words, grown by several tokens at a time; the same index
// again for a second text.
TEST(SuffixIndex, IsTheLongestSuffixSaidBefore) {
  Rng rng(1);
  SuffixIndex index;
  for (int round = 0; round < 20; ++round) {
    constexpr int64_t kSize = 100;  // fewer places than are looked at
    const int64_t shortest = 1 + round % 4;
    index.begin(kSize, shortest);
    Tokens text;
    while (static_cast<int64_t>(text.size()) < kSize) {
      for (uint64_t more = 1 + rng.below(3); more > 0 && std::ssize(text) < kSize; --more)
        text.push_back(static_cast<int32_t>(rng.below(round < 10 ? 3 : 12)));
      const int64_t size = std::ssize(text);
      int64_t longest = 0, best = -1;
      for (int64_t end = size - 2; end >= 0; --end) {
        int64_t length = 0;
        while (length <= end && text[static_cast<size_t>(end - length)] ==
                                    text[static_cast<size_t>(size - 1 - length)])
          ++length;
        if (length > longest) {
          longest = length;
          best = end;
        }
      }
      Tokens expected;
      if (longest >= shortest) expected.push_back(text[static_cast<size_t>(best + 1)]);
      ASSERT_EQ(draft(index, text, 1), expected) << "round " << round << ", " << size << " tokens";
    }
  }
}

TEST(DraftFigures, CountAsVllmDoes) {
  DraftFigures figures;
  EXPECT_EQ(figures.acceptance_rate(), 0);
  EXPECT_EQ(figures.mean_acceptance_length(), 1);
  figures.add(3, 3);
  figures.add(3, 1);
  figures.add(0, 0);  // nothing was drafted
  figures.add(2, 0);
  EXPECT_EQ(figures.drafts, 3);
  EXPECT_EQ(figures.draft_tokens, 8);
  EXPECT_EQ(figures.accepted_tokens, 4);
  EXPECT_THAT(std::span(figures.accepted_at).first(4), ElementsAre(2, 1, 1, 0));
  EXPECT_EQ(figures.acceptance_rate(), 0.5);
  EXPECT_DOUBLE_EQ(figures.mean_acceptance_length(), 1 + 4.0 / 3);
}

}  // namespace
}  // namespace pewter
