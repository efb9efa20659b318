// DraftFigures: how well drafts did, of one request or of all. Definitions are vLLM's: a draft is
// the tokens guessed for one step of one sequence; the mean acceptance length counts the token that
// every step yields.
#pragma once

#include <array>

#include "backend/batch.h"

namespace pewter {

inline constexpr int64_t kMaxDrafts = kMaxDecodeRows - 1;  // of one sequence in a step

struct DraftFigures {
  int64_t drafts = 0;                             // steps of a sequence that had draft tokens
  int64_t draft_tokens = 0, accepted_tokens = 0;  // of them, those that were right
  std::array<int64_t, kMaxDrafts> accepted_at{};  // by position in the draft

  // A draft of `drafted` tokens, of which the first `accepted` were right.
  void add(int64_t drafted, int64_t accepted) {
    if (drafted == 0) return;
    ++drafts;
    draft_tokens += drafted;
    accepted_tokens += accepted;
    for (int64_t i = 0; i < accepted; ++i) ++accepted_at[static_cast<size_t>(i)];
  }
  DraftFigures& operator+=(const DraftFigures& more) {
    drafts += more.drafts;
    draft_tokens += more.draft_tokens;
    accepted_tokens += more.accepted_tokens;
    for (size_t i = 0; i < accepted_at.size(); ++i) accepted_at[i] += more.accepted_at[i];
    return *this;
  }
  // What has come since an earlier count of the same.
  DraftFigures since(const DraftFigures& earlier) const {
    DraftFigures now = *this;
    now.drafts -= earlier.drafts;
    now.draft_tokens -= earlier.draft_tokens;
    now.accepted_tokens -= earlier.accepted_tokens;
    for (size_t i = 0; i < accepted_at.size(); ++i) now.accepted_at[i] -= earlier.accepted_at[i];
    return now;
  }
  double acceptance_rate() const { return ratio(accepted_tokens, draft_tokens); }
  double mean_acceptance_length() const { return 1 + ratio(accepted_tokens, drafts); }

  bool operator==(const DraftFigures&) const = default;

 private:
  static double ratio(int64_t part, int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
  }
};

}  // namespace pewter
