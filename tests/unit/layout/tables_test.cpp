// The tables of a whole world, looked through for every rank, and each rule broken once.
#include "layout/tables.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "config/config.h"

namespace lockstep::layout {
namespace {

config::RunConfig sharded(config::ShardKind kind, std::int64_t replicate = 1) {
  config::RunConfig config;
  config.model =
      with_defaults({.name = "tables", .hidden_size = 96, .num_layers = 5, .num_heads = 4, .intermediate_size = 200, .vocab_size = 1000});
  config.parallel.shard = kind;
  config.parallel.replicate = replicate;
  return config;
}

TEST(Tables, AreRightForAnyNumberOfRanks) {
  using enum config::ShardKind;
  for (const auto kind : {none, optimizer, gradients, full}) {
    for (const int ranks : {1, 2, 3, 5, 7, 8, 64, 512}) EXPECT_EQ(wrong_with(tables_of(sharded(kind), 3, ranks)), "") << ranks;
  }
  const Tables hybrid = tables_of(sharded(full, 64), 2, 512);
  EXPECT_EQ(wrong_with(hybrid), "");
  EXPECT_EQ(to_text(hybrid.mesh), "replicate 64 x shard 8");
  EXPECT_EQ(groups_of(hybrid, 9), "data 0-511; shard 8-15; replicate 1, 9, ..., 505");
  // Every unit's share, there and back among 64 replicas.
  std::int64_t rooms = 0;
  for (const UnitCut& unit : hybrid.units) rooms += unit.room;
  EXPECT_EQ(hybrid.traffic.exchanges, std::int64_t(hybrid.units.size()));
  EXPECT_EQ(hybrid.traffic.exchanged_bytes, 2 * 63 * rooms * 4 / 64);
  EXPECT_EQ(tables_of(sharded(full), 2, 8).traffic.exchanges, 0);
}

TEST(Tables, AdaptersLeaveNothingToShardButFrozenWeights) {
  config::RunConfig config = sharded(config::ShardKind::optimizer);
  config.lora.enabled = true;
  EXPECT_EQ(mesh_of(config, 8).along(Axis::shard), 1) << "no communicators that nobody uses";
  config.parallel.shard = config::ShardKind::full;
  EXPECT_EQ(mesh_of(config, 8).along(Axis::shard), 8);
  const Tables tables = tables_of(config, 1, 8);
  EXPECT_EQ(tables.traffic.reductions, 0);
  EXPECT_GT(tables.traffic.gathers, 0);
}

TEST(Tables, GradientsTravelInTheTypeThatIsAskedFor) {
  config::RunConfig config = sharded(config::ShardKind::gradients);
  config.model.dtype = config::DType::bf16;
  const Traffic weights = tables_of(config, 2, 4).traffic;
  config.parallel.reduce_dtype = config::ReduceDType::f32;
  const Traffic f32 = tables_of(config, 2, 4).traffic;
  EXPECT_EQ(f32.reduced_bytes, 2 * weights.reduced_bytes);
  EXPECT_EQ(f32.gathered_bytes, weights.gathered_bytes);
  // As a rank has them: f32 where it sums several micro-batches, the weights' type where there is but one.
  config.parallel.reduce_dtype = config::ReduceDType::gradient;
  EXPECT_EQ(tables_of(config, 2, 4).traffic.reduced_bytes, f32.reduced_bytes);
  const Traffic once = tables_of(config, 1, 4).traffic;
  EXPECT_GT(once.reductions, 0);
  EXPECT_EQ(4 * once.reduced_bytes, f32.reduced_bytes) << "of one micro-batch, two bytes each";
}

TEST(Tables, GroupsThatDoNotDivideAreNamed) {
  try {
    mesh_of(sharded(config::ShardKind::full, 3), 8);
    FAIL() << "3 groups of 8 ranks";
  } catch (const base::UserError& error) {
    EXPECT_NE(std::string(error.what()).find("3 groups of ranks cannot be made of 8 ranks"), std::string::npos) << error.what();
  }
}

TEST(Tables, WhatIsWrongIsFound) {
  const Tables good = tables_of(sharded(config::ShardKind::full), 2, 6);
  const auto broken = [&](auto change) {
    Tables tables = good;
    change(tables);
    return wrong_with(tables);
  };
  EXPECT_EQ(broken([](Tables& tables) { tables.units[2].room -= 512; }), "unit 2: elements 92160 to 94720 are nobody's");
  EXPECT_NE(broken([](Tables& tables) {
              std::erase_if(tables.moves, [](const Step& step) { return step.move == Move::gather && step.unit == 3; });
            }),
            "");
  EXPECT_NE(broken([](Tables& tables) {
              tables.moves.pop_back();
              tables.moves.pop_back();
            }),
            "");
  EXPECT_EQ(broken([](Tables& tables) { std::swap(tables.schedule[0], tables.schedule[1]); }), "B0 comes before F0");
}

}  // namespace
}  // namespace lockstep::layout
