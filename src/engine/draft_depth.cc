#include "engine/draft_depth.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace pewter {
namespace {

// A guess that was seen 32 guesses ago counts half.
const float kFade = std::exp2(-1.0f / 32);
// What is believed before anything is seen weighs as much as this many guesses.
constexpr double kPrior = 2;
// Of what is expected at a place, the part that is others' acceptance there; the rest is the
// request's own at the place before.
constexpr double kOthers = 0.75;
// Drafts must promise this much more than plain steps: of many estimates the best is too good.
constexpr double kMargin = 1.05;
// Of the time of plain steps, what attempts may cost.
constexpr double kProbeShare = 0.02;
// An attempt is as long as would pay if guesses were right this often.
constexpr double kProbeHope = 0.8;
// Steps without a plain one after which one is due, so that there is something to compare with.
constexpr int64_t kPlainEvery = 256;
constexpr int64_t kMeasurements = 4;  // that a cost needs before it is believed

}  // namespace

void Acceptance::add(int64_t drafted, int64_t accepted) {
  for (int64_t i = 0; i < std::min(drafted, accepted + 1); ++i) {
    const auto at = static_cast<size_t>(i);
    tried_[at] = tried_[at] * kFade + 1;
    right_[at] = right_[at] * kFade + (i < accepted ? 1.0f : 0.0f);
  }
}

void Acceptance::doubt() {
  for (float& tried : tried_) tried /= 2;
  for (float& right : right_) right /= 2;
}

double Acceptance::rate(int64_t i) const {
  double rate = expected_[0];
  for (size_t at = 0; at <= static_cast<size_t>(i); ++at) {
    if (at > 0 && expected_[at] >= 0) rate += kOthers * (expected_[at] - rate);
    rate = (right_[at] + kPrior * rate) / (tried_[at] + kPrior);
  }
  return rate;
}

void Acceptance::restart(const Acceptance& others) {
  Acceptance fresh;
  for (size_t at = 0; at < expected_.size(); ++at)
    if (at == 0 || others.tried_[at] >= kPrior)
      fresh.expected_[at] = static_cast<float>(others.rate(static_cast<int64_t>(at)));
  *this = fresh;
}

DraftDepth::DraftDepth(const Options& options)
    : options_(options),
      costs_(options.max_sequences),
      slots_(static_cast<size_t>(options.max_sequences)) {
  guesses_.reserve(slots_.size() * kMaxDrafts);
}

void DraftDepth::begin(int64_t slot) {
  Slot& fresh = this->slot(slot);
  left_ += fresh.saved;
  fresh = Slot();
  for (size_t source = 0; source < kDraftSources; ++source)
    fresh.acceptance[source].restart(everyone_[source]);
}

void DraftDepth::judged(int64_t slot, DraftSource source, int64_t drafted, int64_t accepted) {
  if (drafted == 0) return;
  const auto at = static_cast<size_t>(source);
  Slot& judged = this->slot(slot);
  judged.acceptance[at].add(drafted, accepted);
  everyone_[at].add(drafted, accepted);
  judged.saved += static_cast<double>(accepted) * judged.token_seconds;
}

void DraftDepth::choose(std::span<DraftCandidate> candidates, int64_t others) {
  for (DraftCandidate& candidate : candidates) {
    CHECK(candidate.most <= kMaxDrafts && candidate.found <= kMaxDrafts, "a draft of ",
          candidate.most, " or ", candidate.found);
    candidate.source = candidate.found > 0 ? DraftSource::kLookup : DraftSource::kModel;
    candidate.drafts = candidate.found > 0 ? candidate.found : candidate.most;
  }
  if (options_.fixed || candidates.empty()) return;
  const int64_t sequences = std::ssize(candidates) + others;
  if (plain_is_due(sequences)) {
    for (DraftCandidate& candidate : candidates) candidate.drafts = 0;
    return;
  }
  for (DraftCandidate& candidate : candidates) pick_source(candidate, sequences);
  share(candidates, sequences);
  for (DraftCandidate& candidate : candidates) {
    if (candidate.drafts == 0)
      probe(candidate, sequences);
    else if (sequences == 1)
      explore(candidate, sequences);
  }
}

bool DraftDepth::plain_is_due(int64_t sequences) {
  const bool due =
      costs_.plain_measurements(sequences) < kMeasurements || ++steps_without_plain_ >= kPlainEvery;
  if (due) steps_without_plain_ = 0;
  return due;
}

DraftDepth::Best DraftDepth::best(const Acceptance& acceptance, DraftSource source, int64_t most,
                                  int64_t sequences) const {
  const auto tokens = static_cast<double>(sequences);
  Best best{.rate = tokens / costs_.step(sequences, 0, 0)};
  double survives = 1, expected = tokens;
  for (int64_t n = 1; n <= most; ++n) {
    survives *= acceptance.rate(n - 1);
    expected += survives;
    const int64_t depth = source == DraftSource::kModel ? n : 0;
    const double rate = expected / costs_.step(sequences, n, depth);
    if (rate > best.rate) best = {.rate = rate, .drafts = n};
  }
  return best;
}

void DraftDepth::pick_source(DraftCandidate& candidate, int64_t sequences) const {
  if (candidate.found == 0 || candidate.most == 0) return;
  const Slot& state = slots_[static_cast<size_t>(candidate.slot)];
  const auto of = [&](DraftSource source, int64_t most) {
    return best(state.acceptance[static_cast<size_t>(source)], source, most, sequences).rate;
  };
  if (of(DraftSource::kModel, candidate.most) > of(DraftSource::kLookup, candidate.found))
    candidate.source = DraftSource::kModel;
}

void DraftDepth::share(std::span<DraftCandidate> candidates, int64_t sequences) {
  guesses_.clear();
  for (size_t c = 0; c < candidates.size(); ++c) {
    DraftCandidate& candidate = candidates[c];
    candidate.drafts = 0;
    const bool model = candidate.source == DraftSource::kModel;
    const Acceptance& acceptance =
        slot(candidate.slot).acceptance[static_cast<size_t>(candidate.source)];
    double survives = 1;
    for (int64_t n = 1; n <= (model ? candidate.most : candidate.found); ++n) {
      survives *= acceptance.rate(n - 1);
      guesses_.push_back({survives, static_cast<int32_t>(n), static_cast<int32_t>(c)});
    }
  }
  // A place never comes before the one it follows: it survives less often, or as often and later.
  std::ranges::sort(guesses_, [](const Guess& a, const Guess& b) {
    if (a.survives != b.survives) return a.survives > b.survives;
    return a.place != b.place ? a.place < b.place : a.candidate < b.candidate;
  });
  double expected = static_cast<double>(sequences), best = 0;
  best = kMargin * expected / costs_.step(sequences, 0, 0);
  size_t taken = 0;
  int64_t depth = 0;
  for (size_t i = 0; i < guesses_.size(); ++i) {
    expected += guesses_[i].survives;
    if (candidates[static_cast<size_t>(guesses_[i].candidate)].source == DraftSource::kModel)
      depth = std::max<int64_t>(depth, guesses_[i].place);
    const double rate = expected / costs_.step(sequences, static_cast<int64_t>(i) + 1, depth);
    if (rate <= best) continue;
    best = rate;
    taken = i + 1;
  }
  for (size_t i = 0; i < taken; ++i)
    candidates[static_cast<size_t>(guesses_[i].candidate)].drafts = guesses_[i].place;
}

void DraftDepth::probe(DraftCandidate& candidate, int64_t sequences) {
  Slot& state = slot(candidate.slot);
  const bool model = candidate.source == DraftSource::kModel;
  const int64_t most = model ? candidate.most : candidate.found;
  const double plain = costs_.step(sequences, 0, 0);
  state.token_seconds = plain / static_cast<double>(sequences);
  state.saved += kProbeShare * state.token_seconds;
  if (most == 0) return;
  const int64_t drafts =
      std::max<int64_t>(1, best(Acceptance(kProbeHope), candidate.source, most, sequences).drafts);
  const double price = costs_.step(sequences, drafts, model ? drafts : 0) - plain;
  if (free_attempts_ > 0)
    --free_attempts_;
  else if (state.saved + left_ < price)
    return;
  else
    left_ = std::max(0.0, left_ - std::max(0.0, price - state.saved));
  candidate.drafts = drafts;
  state.saved = 0;
  state.acceptance[static_cast<size_t>(candidate.source)].doubt();
}

// Costs between measured lengths are guesses themselves: a neighbour that was never measured is.
void DraftDepth::explore(DraftCandidate& candidate, int64_t sequences) const {
  const int64_t most = candidate.source == DraftSource::kModel ? candidate.most : candidate.found;
  if (costs_.measurements(sequences, candidate.drafts) < kMeasurements) return;
  for (const int64_t drafts : {candidate.drafts + 1, candidate.drafts - 1}) {
    if (drafts < 1 || drafts > most) continue;
    if (costs_.measurements(sequences, drafts) >= kMeasurements) continue;
    candidate.drafts = drafts;
    return;
  }
}

}  // namespace pewter
