// The prediction for more GPUs against numbers worked out by hand, and what it must never claim.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "front/app/measure/bench_sizes.h"
#include "front/plan/predict.h"
#include "layout/decoder.h"

namespace lockstep::plan {
namespace {

constexpr double GB = 1e9;

struct Case {
  const char* what;
  Measured measured;
  double bandwidth, latency;
  int gpus;
  double exposed;
};

TEST(Predict, ExposedCommunicationIsWhatTheFormulaSays) {
  const Case cases[] = {
      {"one GPU sends nothing", {0.3, 1000000000, 0, 100000000, 1}, 10 * GB, 0, 1, 0},
      // 10 buckets of 0.1 GB: each 2 x 1/2 x 0.1 / 10 = 0.01 s; 0.1 s in all, 0.2 s of backward: only the last one shows.
      {"hidden but for the last bucket", {0.3, 1000000000, 0, 100000000, 1}, 10 * GB, 0, 2, 0.01},
      // Four GPUs: 2 x 3/4 x 0.1 GB / 1 GB/s = 0.15 s a bucket, 1.5 s in all, less 9/10 of 0.2 s.
      {"bound by the link", {0.3, 1000000000, 0, 100000000, 1}, 1 * GB, 0, 4, 1.5 - 0.18},
      // Of four micro-batches only the last one's backward (0.05 s) hides.
      {"accumulation", {0.3, 1000000000, 0, 100000000, 4}, 2 * GB, 0, 2, 0.5 - 0.045},
      {"one bucket is never hidden", {0.3, 50000000, 0, 100000000, 1}, 1 * GB, 0, 2, 0.05},
      {"an embedding of three buckets comes last", {0.3, 1000000000, 250000000, 100000000, 1}, 10 * GB, 0, 2, 0.03},
      {"latency counts 2 (N - 1) times a bucket", {0.3, 1000, 0, 100000000, 1}, 1e30, 1e-3, 8, 14e-3},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const Prediction p = predict(c.measured, {"test", c.bandwidth, c.latency, ""}, c.gpus);
    EXPECT_NEAR(p.exposed_s, c.exposed, 1e-9);
    EXPECT_NEAR(p.step_s, c.measured.step_seconds + c.exposed, 1e-9);
    EXPECT_NEAR(p.efficiency, c.measured.step_seconds / p.step_s, 1e-12);
    EXPECT_NEAR(p.speed_up, c.gpus * p.efficiency, 1e-12);
    EXPECT_LE(p.speed_up, c.gpus);
  }
}

Links both(const Link& link) { return {link, link}; }
layout::Tables cut(int ranks, const layout::Traffic& moved) {
  layout::Tables tables{.mesh = {{layout::Axis::shard, ranks}}};
  tables.traffic = moved;
  return tables;
}

TEST(Predict, GathersAndReductionsOfShards) {
  struct ShardCase {
    const char* what;
    layout::Traffic moved;
    bool always;
    std::int64_t accumulation;
    double bandwidth, latency, exposed;
  };
  const ShardCase cases[] = {
      // 10 gathers of 0.1 GB at 10 GB/s: 0.1 s behind a step of 0.3 s; 5 reductions of 0.1 GB: 0.05 s behind 0.2 s of backward. One of
      // each.
      {"all hidden but one of each", {10, 5, 1000000000, 500000000}, true, 1, 10 * GB, 0, 0.01 + 0.01},
      {"bound by gathers", {10, 5, 1000000000, 500000000}, true, 1, 2 * GB, 0, 0.5 - 0.3 + 0.25 - 0.2},
      // Of four micro-batches the last one's backward takes 0.05 s.
      {"reduced at the end alone", {10, 5, 1000000000, 500000000}, false, 4, 5 * GB, 0, 0.02 + 0.1 - 0.05},
      {"reduced behind every backward", {10, 20, 1000000000, 500000000}, true, 4, 5 * GB, 0, 0.02 + 0.005},
      {"frozen weights are gathered and nothing is reduced", {10, 0, 1000000000, 0}, true, 1, 10 * GB, 0, 0.01},
      {"latency counts once an operation", {10, 5, 0, 0}, true, 1, 1e30, 1e-3, 2e-3},
  };
  for (const ShardCase& c : cases) {
    const Measured measured{.step_seconds = 0.3, .accumulation = c.accumulation, .sharded = true, .reduces_always = c.always};
    const Prediction p = predict_shards(measured, both({"test", c.bandwidth, c.latency, ""}), cut(8, c.moved));
    EXPECT_NEAR(p.exposed_s, c.exposed, 1e-9) << c.what;
    EXPECT_NEAR(p.speed_up, 8 * 0.3 / (0.3 + c.exposed), 1e-9) << c.what;
  }
  Measured embedding{.step_seconds = 0.3, .late_bytes = 800000000, .sharded = true, .reduces_always = true, .embedding_bytes = 800000000};
  const auto exposed = [&] {
    return predict_shards(embedding, both({"test", 10 * GB, 0, ""}), cut(8, {10, 5, 1000000000, 900000000})).exposed_s;
  };
  EXPECT_NEAR(exposed(), 0.07 + 0.01 + 0.07, 1e-9) << "the embedding's gather and reduction, 7/8 of it each, and the first layer's gather";
  embedding.update_seconds = 0.05;
  EXPECT_NEAR(exposed(), 0.03 + 0.07, 1e-9) << "the first gathers come while the update goes on";
  embedding.update_seconds = 0.2;
  EXPECT_NEAR(exposed(), 0.07, 1e-9);
}

config::RunConfig some_model() {
  config::RunConfig config;
  config.model = layout::with_defaults({.name = "m",
                                        .hidden_size = 512,
                                        .num_layers = 4,
                                        .num_heads = 8,
                                        .intermediate_size = 1024,
                                        .vocab_size = 4096,
                                        .max_seq_len = 128,
                                        .dtype = config::DType::bf16});
  config.parallel.shard = config::ShardKind::full;
  return config;
}

TEST(Predict, AdaptersBesideShardsAreReducedAsReplicasDo) {
  config::RunConfig config = some_model();
  config.lora.enabled = true;
  Measured measured = measured_of(config);
  measured.step_seconds = 0.3;
  EXPECT_LT(measured.gradient_bytes, layout::count_parameters(config.model) / 4) << "adapters alone";
  EXPECT_EQ(measured.late_bytes, 0);
  const Links links = both({"test", GB, 1e-5, ""});
  const Prediction all = predict_for(config, measured, links, 4), sums = predict(measured, links.within, 4);
  measured.adapters = false;
  const Prediction shards = predict_for(config, measured, links, 4);
  EXPECT_GT(sums.communication_s, 0);
  EXPECT_NEAR(all.communication_s, shards.communication_s + sums.communication_s, 1e-12);
  EXPECT_NEAR(all.exposed_s, shards.exposed_s + sums.exposed_s, 1e-12);
}

TEST(Predict, GroupsOfOneRankAreReplicas) {
  config::RunConfig config = some_model();
  config.parallel.replicate = 4;
  Measured measured = measured_of(config);
  measured.step_seconds = 0.3;
  const Links links = both({"test", GB, 1e-5, ""});
  EXPECT_NEAR(predict_for(config, measured, links, 4).exposed_s, predict(measured, links.within, 4).exposed_s, 1e-12);
  EXPECT_GT(predict_for(config, measured, links, 4).exposed_s, 0);
  EXPECT_EQ(gpu_counts(32, 4), (std::vector<int>{1, 4, 8, 16, 32}));
}

TEST(Predict, ReplicasOfShardsMeetOverTheLinkBetweenMachines) {
  const Links links{{"fast", 10 * GB, 0, ""}, {"slow", 1 * GB, 0, ""}, /*machine=*/4};
  layout::Tables tables{.mesh = {{layout::Axis::replicate, 2}, {layout::Axis::shard, 4}}};
  tables.traffic = {10, 5, 1000000000, 500000000, /*exchanges=*/5, /*exchanged_bytes=*/100000000};
  Measured measured{.step_seconds = 0.3, .sharded = true, .reduces_always = true};
  // Gathers and reductions 0.1 and 0.05 s, but for one of each hidden; 0.1 s between machines behind 0.2 s of backward.
  EXPECT_NEAR(predict_shards(measured, links, tables).exposed_s, 0.01 + 0.01, 1e-9);
  EXPECT_NEAR(predict_shards(measured, links, tables).communication_s, 0.1 + 0.05 + 0.1, 1e-9);
  // Of four micro-batches the last one's backward alone, 0.05 s.
  measured.accumulation = 4;
  EXPECT_NEAR(predict_shards(measured, links, tables).exposed_s, 0.01 + 0.01 + 0.1 - 0.05, 1e-9);
  // The embedding's: its gather before the first layer's, 3/4 of it within a machine, then half of a quarter there and back.
  measured.late_bytes = measured.embedding_bytes = 80000000;
  EXPECT_NEAR(predict_shards(measured, links, tables).exposed_s, 0.016 + 0.01 + 0.05, 1e-9);
  measured.accumulation = 1;
  EXPECT_NEAR(predict_shards(measured, links, tables).exposed_s, 0.016 + 0.01 + 0.02, 1e-9);
  EXPECT_EQ(links_named("nvlink8+ib400", 4).between.name, "ib400");
  EXPECT_TRUE(links_named("nvlink8", 4).same());
  EXPECT_THROW(links_named("nvlink8+", 4), base::UserError);
}

TEST(Predict, EveryLinkIsNamedAndSlowerOnesPromiseLess) {
  const Measured measured{0.2, 1000000000, 0, 25 << 20, 1};
  double last = 9;
  for (const Link& link : known_links()) {
    EXPECT_EQ(link_named(link.name).bytes_per_second, link.bytes_per_second);
    EXPECT_FALSE(link.basis.empty());
    const double speed_up = predict(measured, link, 8).speed_up;
    EXPECT_LT(speed_up, last);
    last = speed_up;
  }
  EXPECT_THROW(link_named("nvlnk"), base::UserError);
}

TEST(Predict, CountsDoubleUpToTheLast) {
  EXPECT_EQ(gpu_counts(1), (std::vector<int>{1}));
  EXPECT_EQ(gpu_counts(8), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(gpu_counts(6), (std::vector<int>{1, 2, 4, 6}));
}

TEST(Predict, ReadsRunsAndBenchmarks) {
  const MeasuredRun run = read_measured(
      R"({"model":"m","device":"d","dtype":"bf16","ranks":1,"parameters":7,"batch":{"gradient_accumulation":2},"step_seconds":{"average":0.5}})",
      "s");
  EXPECT_EQ(run.step_seconds, 0.5);
  EXPECT_EQ(run.parameters, 7);
  EXPECT_EQ(run.accumulation, 2);
  const MeasuredRun bench =
      read_measured(R"({"model":"m","device":"d","dtype":"f32","parameters":7,"accumulation":3,"step_seconds":{"median":0.25}})", "s");
  EXPECT_EQ(bench.step_seconds, 0.25);
  EXPECT_EQ(bench.accumulation, 3);
  const MeasuredRun one_of_many = read_measured(
      R"({"model":"m","device":"d","dtype":"f32","ranks":8,"link":"infinite","parameters":7,"accumulation":3,"step_seconds":{"median":0.25}})",
      "s");
  EXPECT_EQ(one_of_many.step_seconds, 0.25);
  for (
      const char* wrong :
      {"", "[]", "{}", R"({"step_seconds":{"median":"x"}})",
       R"({"model":"m","device":"d","dtype":"f32","ranks":8,"link":"nvlink8","parameters":7,"accumulation":3,"step_seconds":{"median":1}})",
       R"({"model":"m","device":"d","dtype":"f32","ranks":2,"parameters":7,"accumulation":3,"step_seconds":{"median":1}})",
       R"({"model":"m","device":"d","dtype":"f32","parameters":7,"accumulation":3,"step_seconds":{"median":0}})"}) {
    EXPECT_THROW(read_measured(wrong, "s"), base::UserError) << wrong;
  }
}

TEST(Predict, TableAndJsonAgree) {
  const Measured measured{0.2, 1000000000, 0, 25 << 20, 1};
  const Link link = link_named("nvlink");
  std::vector<Prediction> predictions;
  for (int gpus : gpu_counts(8)) predictions.push_back(predict(measured, link, gpus));
  const auto json = nlohmann::json::parse(to_json(measured, both(link), predictions));
  ASSERT_EQ(json["predictions"].size(), 4u);
  EXPECT_EQ(json["predictions"][3]["gpus"], 8);
  const std::string text = to_text(measured, both(link), predictions);
  EXPECT_NE(text.find(fmt::format("{:.2f}x", predictions[3].speed_up)), std::string::npos);
  EXPECT_NE(text.find(formula()), std::string::npos);
}

TEST(BenchSizes, RangesAndLists) {
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(app::parse_sizes("1K..16K"), (Sizes{1024, 4096, 16384}));
  EXPECT_EQ(app::parse_sizes("1K..6K"), (Sizes{1024, 4096, 6144}));
  EXPECT_EQ(app::parse_sizes("1m,64k,8"), (Sizes{8, 65536, 1 << 20}));
  EXPECT_EQ(app::parse_sizes("1G..1G"), (Sizes{1 << 30}));
  for (const char* wrong : {"", "K", "1K..", "..1G", "1G..1K", "3", "-4", "1T", "1K;2K", "4000000G"}) {
    EXPECT_THROW(app::parse_sizes(wrong), base::UserError) << wrong;
  }
}

}  // namespace
}  // namespace lockstep::plan
