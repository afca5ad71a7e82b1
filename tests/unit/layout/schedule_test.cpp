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
  constexpr ModelUnits three_layers{.units = 5};
  // Embedding and head once, three layers forward, one more backward: two are still there at the turn, and at the next forward.
  const Case cases[] = {{replicas, 1, 0, 5}, {replicas, 3, 0, 5}, {zero_1, 3, 5, 5},  {zero_2, 3, 5, 15},
                        {zero_3, 1, 6, 5},   {zero_3, 2, 8, 10},  {zero_3, 3, 10, 15}};
  for (const Case& c : cases) {
    const auto schedule = plain_schedule(c.micro_batches);
    const auto table = gather_table(schedule, three_layers, c.placement);
    EXPECT_EQ(wrong_with(table, schedule, three_layers, c.placement), "");
    EXPECT_EQ(traffic_of(table).gathers, c.gathers) << c.micro_batches;
    EXPECT_EQ(traffic_of(table).reductions, c.reductions) << c.micro_batches;
  }
  EXPECT_EQ(traffic_of(gather_table(plain_schedule(1), {.units = 34}, zero_3)).gathers, 2 + 32 + 30);
}

// Two ranks and a model of width 64 in f32: an embedding of 96 x 64, three blocks of 30,848 numbers, padded to 30,976, a head of 6,208,
// padded to 6,400, or of 64 where it is tied. Half of each, rounded up to multiples of 512, comes from the other rank.
TEST(Schedule, BytesByHand) {
  constexpr std::int64_t embedding = 4 * 3072, block = 4 * 15872, head = 4 * 3584, tied_head = 4 * 512;
  const auto model = [](std::int64_t end) {
    std::vector<UnitBytes> units(5, {block, block});
    units.front() = {embedding, embedding};
    units.back() = {end, end};
    return units;
  };
  const auto traffic = [](const ModelUnits& model, const Placement& placement, std::int64_t micro_batches, const auto& units) {
    return traffic_of(gather_table(plain_schedule(micro_batches), model, placement), units);
  };
  const ModelUnits trained{.units = 5}, frozen{.units = 5, .trained = false};
  EXPECT_EQ(traffic(frozen, {.weights = Spread::shard}, 1, model(head)), (Traffic{6, 0, 280576, 0})) << "LoRA";
  EXPECT_EQ(traffic(trained, zero_3, 1, model(tied_head)), (Traffic{6, 5, 268288, 204800})) << "tied";
  EXPECT_EQ(traffic(trained, zero_3, 1, model(head)), (Traffic{6, 5, 280576, 217088})) << "hybrid: each of two pairs of ranks";
  EXPECT_EQ(traffic(trained, zero_3, 3, model(head)), (Traffic{10, 15, 534528, 651264})) << "three micro-batches";
  EXPECT_EQ(traffic(trained, zero_2, 3, model(head)), (Traffic{5, 15, 217088, 651264})) << "accumulation under ZeRO-2";
}

TEST(Schedule, AnyNumberOfUnitsAndFlights) {
  for (std::size_t units = 1; units < 9; ++units) {
    for (const auto& schedule : {plain_schedule(1), plain_schedule(3), std::vector{f0, f1, b0, b1}, std::vector{f0, f1, b1, b0}}) {
      for (const Placement& p : {replicas, zero_1, zero_2, zero_3}) {
        for (const bool trained : {true, false}) {
          const ModelUnits model{units, trained};
          EXPECT_EQ(wrong_with(gather_table(schedule, model, p), schedule, model, p), "") << units << " units, " << to_text(schedule);
        }
      }
    }
  }
}

TEST(Schedule, EveryBrokenRuleIsNamed) {
  const auto schedule = plain_schedule(2);
  constexpr ModelUnits model{.units = 5};
  const auto good = gather_table(schedule, model, zero_3);
  const auto broken = [&](Move move, auto change) {
    auto table = good;
    change(table, std::find_if(table.begin(), table.end(), [&](const Step& step) { return step.move == move; }));
    return wrong_with(table, schedule, model, zero_3);
  };
  const auto of_layer = [](auto change) {  // in place of the embedding's, which comes first
    return [change](auto& table, auto) {
      change(table, std::find_if(table.begin(), table.end(), [](const Step& step) { return step.move == Move::gather && step.slot; }));
    };
  };
  const auto erase = [](auto& table, auto at) { table.erase(at); };
  const auto twice = [](auto& table, auto at) { table.insert(at, Step(*at)); };
  EXPECT_EQ(broken(Move::gather, erase), "unit 0 is computed with weights that are not there");
  EXPECT_EQ(broken(Move::gather, twice), "unit 0 is gathered twice");
  EXPECT_EQ(broken(Move::gather, of_layer(erase)), "unit 1 is computed with weights that are not there");
  EXPECT_EQ(broken(Move::gather, of_layer(twice)), "unit 1 is gathered over unit 1, which is open");
  EXPECT_EQ(broken(Move::gather, of_layer([](auto&, auto at) { at->slot = 0; })), "unit 2 is gathered over unit 1, which is open");
  EXPECT_EQ(broken(Move::gather, of_layer([](auto&, auto at) { at->slot = 2; })), "there is no slot 2");
  EXPECT_EQ(broken(Move::release, erase), "unit 3 is gathered over unit 1, which is open");
  EXPECT_EQ(broken(Move::release, twice), "unit 1 is released but not open");
  EXPECT_EQ(broken(Move::compute, erase), "unit 0 of F0 is not computed in its turn");
  EXPECT_EQ(broken(Move::reduce, erase), "unit 4's gradient is never reduced");
  EXPECT_EQ(broken(Move::reduce, twice), "unit 4's gradient is reduced twice");
  EXPECT_EQ(broken(Move::reduce, [](auto&, auto at) { std::swap(*at, *(at - 1)); }), "unit 4's gradient is reduced before backward of 0");
  EXPECT_EQ(broken(Move::compute, [](auto&, auto at) { at->unit = 7; }), "there is no unit 7");

  auto whole = gather_table(schedule, model, replicas);
  const auto first_backward = std::find_if(whole.begin(), whole.end(), [](const Step& step) { return step.pass == Do::backward; });
  whole.insert(first_backward + 1, {Move::reduce, Do::backward, 0, 4});
  EXPECT_EQ(wrong_with(whole, schedule, model, replicas), "unit 4's gradient is reduced before the last micro-batch");
}

}  // namespace
}  // namespace lockstep::layout
