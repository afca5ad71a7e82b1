// Slices cover every element exactly once for any number of ranks, and a table that does not is named; so are placements that cannot be.
#include "layout/spread/placement.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "layout/decoder.h"

namespace lockstep::layout {
namespace {

std::vector<UnitSpec> small_model() {
  return decoder_units({.hidden_size = 48,
                        .num_layers = 3,
                        .num_heads = 6,
                        .kv_heads = 2,
                        .intermediate_size = 80,
                        .vocab_size = 50,
                        .tie_embeddings = false,
                        .qkv_bias = true,
                        .qk_norm = true});
}

TEST(Placement, EveryElementIsOnOneRank) {
  const auto units = small_model();
  for (const int ranks : {1, 2, 3, 5, 6, 7, 8, 64}) {
    SCOPED_TRACE(ranks);
    for (const auto optimizer : {config::Optimizer::adamw, config::Optimizer::adamw_8bit}) {
      std::vector<UnitCut> cuts;
      std::vector<std::int64_t> elements;
      for (const UnitSpec& unit : units) {
        cuts.push_back(cut_of(unit, {}, optimizer, ranks));
        EXPECT_EQ(cuts.back().room % slice_grain, 0);
        elements.push_back(cuts.back().elements);
      }
      EXPECT_EQ(uncovered(elements, shards_by_rank(cuts, ranks)), "");
    }
  }
}

TEST(Placement, SlicesAreOfOneSizeAndCutAtStretches) {
  EXPECT_EQ(shard_elements({.elements = 2048}, 4), 512);
  EXPECT_EQ(shard_elements({.elements = 2048}, 3), 1024) << "683 rounded up";
  EXPECT_EQ(shard_of(7, 2048, 0, 1024), (Slice{7, 0, 1024}));
  EXPECT_EQ(shard_of(7, 2048, 1, 1024), (Slice{7, 1024, 1024}));
  EXPECT_EQ(shard_of(7, 2048, 2, 1024), (Slice{7, 2048, 0})) << "fewer stretches than ranks: the last has none";
  EXPECT_EQ(shard_of(0, 1792, 1, 1024), (Slice{0, 1024, 768})) << "the last is shorter";
}

TEST(Placement, NoBlockOf8BitStatesIsCut) {
  const UnitSpec unit{.name = "odd",
                      .leaves = {{.name = "w", .pieces = {{"a", {72, 72}}, {"b", {100, 72}}}}, {.name = "n", .pieces = {{"n", {72}}}}}};
  const FlatLayout flat = flat_layout(unit, {});
  for (const int ranks : {1, 2, 3, 5, 8}) {
    const Cuttable where = cuttable(unit, flat, config::Optimizer::adamw_8bit);
    ASSERT_EQ(where.blocks.size(), 2u);
    const std::int64_t size = shard_elements(where, ranks);
    EXPECT_GE(size * ranks, flat.elements);
    for (std::int64_t at = size; at < flat.elements; at += size)
      for (const auto& [begin, end] : where.blocks)
        if (at > begin && at < end) EXPECT_EQ((at - begin) % state_block, 0) << ranks << " ranks";
    EXPECT_LE(shard_elements(cuttable(unit, flat, config::Optimizer::adamw), ranks), size);
  }
}

TEST(Placement, EveryMatrixHasOneOwnerAndAllOwnAlike) {
  for (const auto method : {config::Optimizer::muon, config::Optimizer::adafactor}) {
    const std::vector<Slice> all = whole_pieces(small_model(), method);
    for (const int ranks : {2, 3, 5, 64}) {
      SCOPED_TRACE(ranks);
      std::int64_t most = 0, least = std::int64_t{1} << 60, largest = 0;
      std::vector<Slice> dealt;
      for (const auto& slices : dealt_by_rank(all, ranks)) {
        std::int64_t load = 0;
        for (const Slice& slice : slices) {
          dealt.push_back(slice);
          load += slice.count;
          largest = std::max(largest, slice.count);
        }
        most = std::max(most, load);
        least = std::min(least, load);
      }
      EXPECT_TRUE(std::is_permutation(dealt.begin(), dealt.end(), all.begin(), all.end()));
      EXPECT_LE(most - least, largest);
    }
  }
}

// What AdamW updates by shares has no owner: a rank that had the embedding would be left out where matrices are dealt.
TEST(Placement, MuonOwnsMatricesOfLayersAlone) {
  const auto units = decoder_units({.hidden_size = 896,
                                    .num_layers = 24,
                                    .num_heads = 14,
                                    .kv_heads = 2,
                                    .intermediate_size = 4864,
                                    .vocab_size = 151936,
                                    .tie_embeddings = true});
  std::int64_t all = 0, most = 0;
  for (const auto& slices : dealt_by_rank(whole_pieces(units, config::Optimizer::muon), 4)) {
    std::int64_t load = 0;
    for (const Slice& slice : slices) {
      EXPECT_NE(slice.unit, 0u) << "the embedding";
      load += slice.count;
    }
    all += load;
    most = std::max(most, load);
  }
  EXPECT_EQ(all, 24 * (2 * 896 * 896 + 2 * 896 * 128 + 3 * 896 * 4864));
  EXPECT_LT(double(most), 1.1 * double(all) / 4);
}

TEST(Placement, BrokenTablesAreNamed) {
  const std::vector<std::int64_t> elements = {2048, 1024};
  const auto good = shards_by_rank({{1024, 2048, 4}, {512, 1024, 4}}, 2);
  ASSERT_EQ(uncovered(elements, good), "");
  const auto broken = [&](auto change) {
    auto table = good;
    change(table);
    return uncovered(elements, table);
  };
  EXPECT_EQ(broken([](auto& t) { t[1].pop_back(); }), "unit 1: elements 512 to 1024 are nobody's");
  EXPECT_EQ(broken([](auto& t) { t[1].push_back(t[0].front()); }), "unit 0: element 0 is rank 1's and another's");
  EXPECT_EQ(broken([](auto& t) { t[0].front().begin += 1; }), "unit 0: elements 0 to 1 are nobody's");
  EXPECT_EQ(broken([](auto& t) { t[1].front().begin += 512; }), "unit 0: elements 1024 to 1536 are nobody's");
  EXPECT_EQ(broken([](auto& t) { t[1].back().count += 256; }), "unit 1: a slice ends at 1280, behind its 1024 elements");
  EXPECT_EQ(broken([](auto& t) { t[0].front().unit = 9; }), "rank 0 has a slice of unit 9, of which there is none");
}

TEST(Placement, WhatCannotBeIsNamed) {
  for (const Placement& p : {replicas, zero_1, zero_2, zero_3, Placement{.states = Spread::owned}}) EXPECT_EQ(impossible(p), "");
  using enum Spread;
  EXPECT_NE(impossible({owned, shard, shard}).find("never owned"), std::string::npos);
  EXPECT_NE(impossible({whole, shard, whole}).find("gradients are not"), std::string::npos);
  EXPECT_NE(impossible({shard, whole, whole}).find("weights are not"), std::string::npos);
  EXPECT_NE(impossible({shard, whole, shard}).find("shard gradients too"), std::string::npos);
  EXPECT_NE(impossible({whole, owned, shard}).find("one of them must change"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::layout
