// What a step costs, measured while it is paid: seconds of a decode step by the guesses it
// verifies, seconds of drafting by how deep it goes, for every number of sequences apart. Where
// nothing was measured yet the nearest measurements speak, hopefully rather than not, so that it
// gets measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pewter {

// Seconds over a quantity x ≥ 0, known at the places where it was measured and straight lines
// between them.
class TimeCurve {
 public:
  TimeCurve() { points_.reserve(kMostPoints); }

  // Disturbances only ever make a step longer, so a place follows shorter ones quickly and longer
  // ones slowly: at first it is the shortest of four, then it moves by a quarter of what a shorter
  // one differs and a sixteenth of a longer one, taken as half longer at most. All other places
  // move half as far in proportion: what slows one (another program, a longer context) slows all.
  void add(double x, double seconds);
  // Behind the last place it goes on as it went from the first one there; with one place alone, x
  // costs `guess` of its seconds each. 0 while nothing is known.
  double at(double x, double guess = 0) const;
  // How often x itself was measured.
  int64_t measurements(double x) const;
  bool empty() const { return points_.empty(); }
  // The same, for steps whose x is `factor` times as large.
  void assume(const TimeCurve& other, double factor);

 private:
  static constexpr size_t kMostPoints = 64;
  struct Point {
    double x = 0, seconds = 0;
    int64_t measurements = 0;
  };
  // The place that stands for x, or where it would be.
  std::vector<Point>::iterator near(double x);

  std::vector<Point> points_;  // by x
};

class DraftCosts {
 public:
  explicit DraftCosts(int64_t max_sequences);

  // A decode step of so many sequences that verified `drafts` guesses, all of them together.
  void verified(int64_t sequences, int64_t drafts, double seconds);
  // Drafting for so many sequences, of which the longest draft got `depth` guesses from a model.
  void drafted(int64_t sequences, int64_t depth, double seconds);

  // Seconds such a step and the drafting for it would take.
  double step(int64_t sequences, int64_t drafts, int64_t depth) const;
  // How often a step without guesses was measured.
  int64_t plain_measurements(int64_t sequences) const;
  int64_t measurements(int64_t sequences, int64_t drafts) const;

 private:
  struct Curves {
    TimeCurve verify, draft;
  };
  // Those of the nearest number of sequences when it has none of its own yet.
  Curves& of(int64_t sequences);
  const Curves& of(int64_t sequences) const { return by_sequences_[index(sequences)]; }
  size_t index(int64_t sequences) const;

  std::vector<Curves> by_sequences_;  // [max_sequences]
};

}  // namespace pewter
