// The arithmetic behind the benchmarks' tables: medians, bandwidths, shares, amortised updates.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "rank/bench/bench.h"

namespace lockstep::bench {
namespace {

TEST(Spread, MedianMinMax) {
  const struct {
    std::vector<double> values;
    double median, min, max;
  } cases[] = {{{3}, 3, 3, 3}, {{4, 1}, 2.5, 1, 4}, {{9, 1, 2}, 2, 1, 9}, {{4, 3, 2, 100}, 3.5, 2, 100}};
  for (const auto& c : cases) {
    const Spread spread = spread_of(c.values);
    EXPECT_EQ(spread.median, c.median);
    EXPECT_EQ(spread.min, c.min);
    EXPECT_EQ(spread.max, c.max);
  }
}

TEST(Timing, CountsCalls) {
  int calls = 0;
  EXPECT_EQ(time_calls(at::kCPU, 3, 4, [&] { ++calls; }).size(), 4u);
  EXPECT_EQ(calls, 7);
}

TEST(CommResult, BusBandwidthCountsWhatALinkCarries) {
  const struct {
    const char* operation;
    int ranks;
    double bus;
  } cases[] = {{"all_reduce", 2, 100},    {"all_reduce", 4, 150}, {"all_gather", 4, 75},
               {"reduce_scatter", 2, 50}, {"broadcast", 8, 100},  {"all_reduce", 1, 0}};
  for (const auto& c : cases) {
    const CommResult result{.operation = c.operation, .bytes = 1000, .seconds = 10, .calls = 1, .ranks = c.ranks};
    EXPECT_DOUBLE_EQ(result.algorithm_bandwidth(), 100) << c.operation;
    EXPECT_DOUBLE_EQ(result.bus_bandwidth(), c.bus) << c.operation << " of " << c.ranks;
  }
}

TEST(KernelResult, ShareIsOfTheCeilingThatLimitsIt) {
  const Ceilings ceilings{.bytes_per_second = 1000, .flops_per_second = 4000};
  const KernelResult moves{.name = "copy", .seconds = {2, 1, 3}, .bytes = 1000};
  EXPECT_DOUBLE_EQ(moves.rate(), 500);
  EXPECT_DOUBLE_EQ(moves.share_of(ceilings), 0.5);
  const KernelResult computes{.name = "matmul", .seconds = {2, 1, 3}, .flops = 2000};
  EXPECT_DOUBLE_EQ(computes.rate(), 1000);
  EXPECT_DOUBLE_EQ(computes.share_of(ceilings), 0.25);
  const KernelsResult table{.model = "m", .device = "d", .dtype = "f32", .rows = 1, .ceilings = ceilings, .kernels = {moves, computes}};
  EXPECT_NE(to_text(table).find("50.0 %"), std::string::npos);
  EXPECT_NE(to_text(table).find("25.0 %"), std::string::npos);
  const auto json = nlohmann::json::parse(to_json(table));
  EXPECT_EQ(json["kernels"][0]["limit"], "bandwidth");
  EXPECT_EQ(json["kernels"][1]["limit"], "compute");
}

TEST(StepResult, RatesAndUpdates) {
  StepResult result{.model = "m",
                    .device = "d",
                    .dtype = "bf16",
                    .seq_len = 1024,
                    .batch_size = 4,
                    .accumulation = 2,
                    .tokens_per_step = 8192,
                    .step_seconds = {1.5}};
  result.step = {1.5, 1.5, 1.5};
  result.micro_batch = {0.5, 0.5, 0.5};
  result.update = {0.5, 0.5, 0.5};
  result.flops_per_token = {.projections = 80, .others = 20};
  result.peak_flops = train::PeakFlops{.dense = 1e6, .fp8 = 2e6};
  result.ceilings = {.bytes_per_second = 1, .flops_per_second = 1e7};
  EXPECT_DOUBLE_EQ(result.tokens_per_second(), 8192 / 1.5);
  const auto json = nlohmann::json::parse(to_json(result));
  EXPECT_DOUBLE_EQ(json["mfu"], 8192 / 1.5 * 100 / 1e6);
  EXPECT_DOUBLE_EQ(json["share_of_measured_matmul"], 8192 / 1.5 * 100 / 1e7);
  result.fp8 = true;  // the products of blocks against the peak of 8 bits, the rest against that of 16
  EXPECT_DOUBLE_EQ(nlohmann::json::parse(to_json(result))["mfu"], 8192 / 1.5 * (80 / 2e6 + 20 / 1e6));
  result.peak_flops.reset();
  EXPECT_TRUE(nlohmann::json::parse(to_json(result))["mfu"].is_null());
  EXPECT_NE(to_text(result).find("not stated"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::bench
