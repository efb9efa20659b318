#include "engine/draft_costs.h"

#include <gtest/gtest.h>

namespace pewter {
namespace {

TEST(TimeCurve, IsStraightBetweenMeasurements) {
  TimeCurve curve;
  EXPECT_EQ(curve.at(3), 0);
  curve.add(0, 10);
  EXPECT_EQ(curve.at(0), 10);
  EXPECT_DOUBLE_EQ(curve.at(4, 0.05), 12);  // guessed
  curve.add(4, 18);
  EXPECT_DOUBLE_EQ(curve.at(2), 14);
  EXPECT_DOUBLE_EQ(curve.at(8), 26);
  curve.add(8, 16);  // cheaper than what lies before: as it was measured
  EXPECT_DOUBLE_EQ(curve.at(6), 17);
  EXPECT_DOUBLE_EQ(curve.at(16), 22);
  EXPECT_EQ(curve.measurements(4), 1);
  EXPECT_EQ(curve.measurements(5), 0);
}

TEST(TimeCurve, FollowsWhatIsMeasured) {
  TimeCurve curve;
  for (int i = 0; i < 100; ++i) curve.add(0, 10);
  for (int i = 0; i < 100; ++i) curve.add(3, 16);
  EXPECT_NEAR(curve.at(3), 16, 0.01);
  EXPECT_NEAR(curve.at(0), 10, 0.01);
  // One that was disturbed moves it little, and lastingly slower or faster steps all the way.
  curve.add(3, 1600);
  EXPECT_LT(curve.at(3), 16.6);
  for (int i = 0; i < 100; ++i) curve.add(3, 32);
  EXPECT_NEAR(curve.at(3), 32, 0.5);
  // What slows one slows the others, who have not been measured since, in part.
  EXPECT_GT(curve.at(0), 12);
  EXPECT_LT(curve.at(0), 20);
  for (int i = 0; i < 20; ++i) curve.add(3, 8);
  EXPECT_NEAR(curve.at(3), 8, 0.5);
}

// A program that takes the processor away for a while, in a third of the steps and from the first.
TEST(TimeCurve, IsThatOfUndisturbedSteps) {
  TimeCurve curve;
  for (int i = 0; i < 300; ++i)
    for (const double x : {0.0, 2.0}) curve.add(x, (10 + x) * (i % 3 == 0 ? 4 : 1));
  EXPECT_NEAR(curve.at(0), 10, 1.5);
  EXPECT_NEAR(curve.at(2) / curve.at(0), 1.2, 0.05);
}

TEST(DraftCosts, KnowsStepsAndDraftingOfEachCount) {
  DraftCosts costs(8);
  EXPECT_EQ(costs.step(2, 3, 3), 0);
  costs.verified(1, 0, 10);
  costs.verified(1, 4, 14);
  costs.drafted(1, 0, 1);
  costs.drafted(1, 4, 9);
  EXPECT_DOUBLE_EQ(costs.step(1, 0, 0), 11);
  EXPECT_DOUBLE_EQ(costs.step(1, 2, 2), 12 + 5);
  EXPECT_DOUBLE_EQ(costs.step(1, 2, 0), 12 + 1);  // guesses that no model made
  // Four sequences begin with what is known of one: four times the guesses are as many each.
  costs.verified(4, 0, 20);
  EXPECT_EQ(costs.plain_measurements(4), 1);
  EXPECT_DOUBLE_EQ(costs.step(4, 0, 0), 21);
  EXPECT_EQ(costs.measurements(4, 16), 0);
  EXPECT_DOUBLE_EQ(costs.step(4, 16, 0), 14 + 1);
  // And neither moves the other.
  EXPECT_DOUBLE_EQ(costs.step(1, 0, 0), 11);
}

}  // namespace
}  // namespace pewter
