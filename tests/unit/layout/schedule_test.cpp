// Tables of actions, gathers and reductions: what they hold for hand-worked cases, and that every rule broken once is named.
#include "layout/spread/schedule.h"

#include <gtest/gtest.h>

namespace lockstep::layout {
namespace {

const Action f0{Do::forward, 0}, b0{Do::backward, 0}, f1{Do::forward, 1}, b1{Do::backward, 1};

TEST(Schedule, PlainTrainingAndItsRules) {
  EXPECT_EQ(to_text(plain_schedule(2)), "F0 B0 F1 B1");
  EXPECT_EQ(wrong_with(plain_schedule(3), 3, 1), "");
  EXPECT_EQ(wrong_with({f0, f1, b0, b1}, 2, 2), "");
  EXPECT_EQ(wrong_with({f0, f1, b0, b1}, 2, 1), "at F1 more than 1 micro-batches are in flight");
  EXPECT_EQ(wrong_with({b0, f0}, 1, 1), "B0 comes before F0");
  EXPECT_EQ(wrong_with({f0, f0, b0}, 1, 2), "F0 comes twice");
  EXPECT_EQ(wrong_with({f0, b0, b0}, 1, 1), "B0 comes twice");
  EXPECT_EQ(wrong_with({f0, b0, f1}, 2, 1), "B1 never comes");
  EXPECT_EQ(wrong_with({f0, b0, f1, b1}, 1, 1), "there is no micro-batch 1");
}

TEST(Schedule, GathersAndReductionsByHand) {
  struct Case {
    Placement placement;
    std::int64_t micro_batches, gathers, reductions;
  };
  constexpr std::size_t units = 4;
  // Sharded: 4 gathers forward, 3 more backward because the last stays open at the turn; the first stays open to the next forward.
  const Case cases[] = {{replicas, 1, 0, 4}, {replicas, 3, 0, 4}, {zero_1, 3, 0, 4},  {zero_2, 3, 0, 12},
                        {zero_3, 1, 7, 4},   {zero_3, 2, 13, 8},  {zero_3, 3, 19, 12}};
  for (const Case& c : cases) {
    const auto schedule = plain_schedule(c.micro_batches);
    const auto table = gather_table(schedule, units, c.placement);
    EXPECT_EQ(wrong_with(table, schedule, units, c.placement), "");
    EXPECT_EQ(traffic_of(table).gathers, c.gathers) << c.micro_batches;
    EXPECT_EQ(traffic_of(table).reductions, c.reductions) << c.micro_batches;
  }
}

TEST(Schedule, AnyNumberOfUnitsAndFlights) {
  for (std::size_t units = 1; units < 9; ++units) {
    for (const auto& schedule : {plain_schedule(1), plain_schedule(3), std::vector{f0, f1, b0, b1}, std::vector{f0, f1, b1, b0}}) {
      for (const Placement& p : {replicas, zero_1, zero_2, zero_3})
        EXPECT_EQ(wrong_with(gather_table(schedule, units, p), schedule, units, p), "") << units << " units, " << to_text(schedule);
    }
  }
}

TEST(Schedule, EveryBrokenRuleIsNamed) {
  const auto schedule = plain_schedule(2);
  constexpr std::size_t units = 3;
  const auto good = gather_table(schedule, units, zero_3);
  const auto broken = [&](Move move, auto change) {
    auto table = good;
    change(table, std::find_if(table.begin(), table.end(), [&](const Step& step) { return step.move == move; }));
    return wrong_with(table, schedule, units, zero_3);
  };
  const auto erase = [](auto& table, auto at) { table.erase(at); };
  const auto twice = [](auto& table, auto at) { table.insert(at, *at); };
  EXPECT_EQ(broken(Move::gather, erase), "unit 0 is computed with weights that are not there");
  EXPECT_EQ(broken(Move::gather, twice), "unit 0 is gathered over unit 0, which is open");
  EXPECT_EQ(broken(Move::release, erase), "unit 2 is gathered over unit 0, which is open");
  EXPECT_EQ(broken(Move::release, twice), "unit 0 is released but not open");
  EXPECT_EQ(broken(Move::compute, erase), "unit 0 of F0 is not computed in its turn");
  EXPECT_EQ(broken(Move::reduce, erase), "unit 2's gradient is never reduced");
  EXPECT_EQ(broken(Move::reduce, twice), "unit 2's gradient is reduced twice");
  EXPECT_EQ(broken(Move::gather, [](auto&, auto at) { at->slot = 1; }), "unit 1 is gathered over unit 0, which is open");
  EXPECT_EQ(broken(Move::reduce, [](auto&, auto at) { std::swap(*at, *(at - 1)); }), "unit 2's gradient is reduced before backward of 0");
  EXPECT_EQ(broken(Move::compute, [](auto&, auto at) { at->unit = 7; }), "there is no unit 7");

  auto whole = gather_table(schedule, units, replicas);
  const auto first_backward = std::find_if(whole.begin(), whole.end(), [](const Step& step) { return step.pass == Do::backward; });
  whole.insert(first_backward + 1, {Move::reduce, Do::backward, 0, 2});
  EXPECT_EQ(wrong_with(whole, schedule, units, replicas), "unit 2's gradient is reduced before the last micro-batch");
}

}  // namespace
}  // namespace lockstep::layout
