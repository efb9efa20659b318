#include "engine/draft_costs.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace pewter {
namespace {

constexpr double kShorter = 0.25, kLonger = 0.0625, kShared = 0.5;
constexpr int64_t kShortestOf = 4;
// Places closer than this part of themselves are one.
constexpr double kSamePlace = 0.12;
// Of a plain step, what a guess is taken to cost until one was verified.
constexpr double kGuessedRow = 0.05;

}  // namespace

std::vector<TimeCurve::Point>::iterator TimeCurve::near(double x) {
  const auto after = std::ranges::lower_bound(points_, x, {}, &Point::x);
  const auto close = [x](const Point& p) { return std::abs(p.x - x) <= kSamePlace * x; };
  if (after != points_.end() && close(*after)) return after;
  if (after != points_.begin() && close(*std::prev(after))) return std::prev(after);
  return after;
}

void TimeCurve::add(double x, double seconds) {
  auto place = near(x);
  const bool known = place != points_.end() && std::abs(place->x - x) <= kSamePlace * x;
  if (!known && points_.size() == kMostPoints) return;  // thousands of guesses
  if (!known) {
    points_.insert(place, {.x = x, .seconds = seconds, .measurements = 1});
    return;
  }
  if (place->measurements++ == 0) place->seconds = seconds;
  if (place->measurements <= kShortestOf) {
    place->seconds = std::min(place->seconds, seconds);
    return;
  }
  const double ratio = std::clamp(seconds / std::max(place->seconds, 1e-12), 0.5, 1.5) - 1;
  const double own = (ratio < 0 ? kShorter : kLonger) * ratio;
  for (Point& point : points_) point.seconds *= 1 + (&point == &*place ? 1 : kShared) * own;
}

double TimeCurve::at(double x, double guess) const {
  if (points_.empty()) return 0;
  const Point& first = points_.front();
  const Point& last = points_.back();
  if (x >= last.x) {
    const double slope = points_.size() > 1 && last.x > first.x
                             ? std::max(0.0, last.seconds - first.seconds) / (last.x - first.x)
                             : guess * last.seconds;
    return last.seconds + slope * (x - last.x);
  }
  if (x <= first.x) return first.seconds;
  const auto after = std::ranges::upper_bound(points_, x, {}, &Point::x);
  const Point& low = *std::prev(after);
  return low.seconds + (after->seconds - low.seconds) * (x - low.x) / (after->x - low.x);
}

int64_t TimeCurve::measurements(double x) const {
  for (const Point& point : points_)
    if (std::abs(point.x - x) <= kSamePlace * x) return point.measurements;
  return 0;
}

void TimeCurve::assume(const TimeCurve& other, double factor) {
  points_.clear();
  for (const Point& point : other.points_)
    points_.push_back({.x = point.x * factor, .seconds = point.seconds, .measurements = 0});
}

DraftCosts::DraftCosts(int64_t max_sequences)
    : by_sequences_(static_cast<size_t>(std::max<int64_t>(max_sequences, 1))) {}

size_t DraftCosts::index(int64_t sequences) const {
  CHECK(sequences >= 1 && sequences <= static_cast<int64_t>(by_sequences_.size()), sequences,
        " sequences in a step");
  return static_cast<size_t>(sequences - 1);
}

DraftCosts::Curves& DraftCosts::of(int64_t sequences) {
  const size_t at = index(sequences);
  Curves& own = by_sequences_[at];
  if (!own.verify.empty()) return own;
  for (size_t away = 1; away < by_sequences_.size(); ++away)
    for (const size_t other : {at - away, at + away})  // below 0 wraps beyond the end
      if (other < by_sequences_.size() && !by_sequences_[other].verify.empty()) {
        const Curves& known = by_sequences_[other];
        own.verify.assume(known.verify,
                          static_cast<double>(at + 1) / static_cast<double>(other + 1));
        own.draft.assume(known.draft, 1);
        return own;
      }
  return own;
}

void DraftCosts::verified(int64_t sequences, int64_t drafts, double seconds) {
  of(sequences).verify.add(static_cast<double>(drafts), seconds);
}

void DraftCosts::drafted(int64_t sequences, int64_t depth, double seconds) {
  of(sequences).draft.add(static_cast<double>(depth), seconds);
}

double DraftCosts::step(int64_t sequences, int64_t drafts, int64_t depth) const {
  const Curves& curves = of(sequences);
  return curves.verify.at(static_cast<double>(drafts),
                          kGuessedRow / static_cast<double>(sequences)) +
         curves.draft.at(static_cast<double>(depth));
}

int64_t DraftCosts::plain_measurements(int64_t sequences) const {
  return of(sequences).verify.measurements(0);
}

int64_t DraftCosts::measurements(int64_t sequences, int64_t drafts) const {
  return of(sequences).verify.measurements(static_cast<double>(drafts));
}

}  // namespace pewter
