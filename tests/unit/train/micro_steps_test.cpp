// Recorded micro-steps against those that run kernel by kernel: the same bits, whatever happens to the model in between. On CUDA graphs
// are real; on a CPU a recording is the function itself, so that there the tests are about when to record and what is copied where.
#include <ATen/ops/ones.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "rank/kernels/fp8.h"
#include "rank/model/decode_cache.h"
#include "unit/train/micro_steps_fixture.h"

namespace lockstep::train {
namespace {

struct Case {
  std::string name;
  std::function<void(config::RunConfig&)> change = [](config::RunConfig&) {};
  std::vector<model::Recompute> keep = {};
  int accumulation = 1;
  std::function<void(Training&, int step)> between = [](Training&, int) {};
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

void evaluate_other_shapes(Training& t, int step) {
  const data::TextFields other = data::text(t.batch(500 + step, 2, 24 + 8 * (step % 10)));  // longer ones make the rotary table grow
  t.decoder().score({.tokens = other.tokens, .targets = other.targets});
  if (!t.device.is_cpu() && step % 4 == 0) at::getDeviceAllocator(t.device.type())->emptyCache();
  poison_free_memory(t.device);
}

void write_texts(Training& t, int step) {
  model::DecodeCache cache = t.decoder().make_cache(3);
  at::Tensor next = t.decoder().decode(data::text(t.batch(step, 3, 20 + step)).tokens, cache).argmax(-1);
  for (int i = 0; i < 3; ++i) next = t.decoder().decode(next.unsqueeze(1), cache).argmax(-1);
  poison_free_memory(t.device);
}

void with_lora(config::RunConfig& c) {
  c.lora.enabled = true;
  c.lora.rank = 4;
  c.lora.target_modules = {"all-linear"};
}

std::vector<Case> cases() {
  using model::Recompute;
  const auto bf16 = [](config::RunConfig& c) { c.model.dtype = config::DType::bf16; };
  return {
      {.name = "f32"},
      {.name = "bf16", .change = bf16},
      {.name = "accumulation", .change = bf16, .accumulation = 3},
      {.name = "norms_again", .change = bf16, .keep = {Recompute::norms, Recompute::norms, Recompute::norms}, .accumulation = 2},
      {.name = "qkv_again", .change = bf16, .keep = {Recompute::qkv, Recompute::qkv, Recompute::qkv}, .accumulation = 2},
      {.name = "blocks_again", .change = bf16, .keep = {Recompute::blocks, Recompute::blocks, Recompute::blocks}},
      {.name = "policies_mixed",
       .keep = {Recompute::blocks, Recompute::none, Recompute::norms},
       .accumulation = 2,
       .between = evaluate_other_shapes},
      {.name = "evaluation", .change = bf16, .between = evaluate_other_shapes},
      {.name = "evaluation_and_accumulation", .change = bf16, .accumulation = 2, .between = evaluate_other_shapes},
      {.name = "texts", .change = bf16, .accumulation = 2, .between = write_texts},
      {.name = "everything_normed",
       .change =
           [](config::RunConfig& c) {
             c.model.dtype = config::DType::bf16;
             c.model.qkv_bias = c.model.qk_norm = true;
           },
       .between = evaluate_other_shapes},
      {.name = "f16",
       .change =
           [](config::RunConfig& c) {
             c.model.dtype = config::DType::f16;
             c.trainer.loss_scale_window = 4;  // the scale moves while graphs run
           }},
      {.name = "lora",
       .change =
           [](config::RunConfig& c) {
             c.model.dtype = config::DType::bf16;
             with_lora(c);
           },
       .accumulation = 2,
       .between = evaluate_other_shapes},
      {.name = "lora_with_dropout",
       .change =
           [](config::RunConfig& c) {
             with_lora(c);
             c.lora.dropout = 0.3;
           },
       .between = evaluate_other_shapes},
      {.name = "dora",
       .change =
           [](config::RunConfig& c) {
             with_lora(c);
             c.lora.dora = true;
           },
       .between = evaluate_other_shapes},
      {.name = "four_bits",
       .change =
           [](config::RunConfig& c) {
             c.model.dtype = config::DType::bf16;
             with_lora(c);
             c.model.load_in_4bit = true;
           },
       .between = write_texts},
      {.name = "eight_bit_products",
       .change =
           [](config::RunConfig& c) {
             c.model.dtype = config::DType::bf16;
             c.trainer.fp8 = true;
           },
       .accumulation = 2,
       .between = evaluate_other_shapes},
  };
}

class Recorded : public ::testing::TestWithParam<Case> {};

TEST_P(Recorded, GivesTheSameBits) {
  const Case& c = GetParam();
  const test::Deterministic deterministic;
  config::RunConfig config = tiny();
  c.change(config);
  if (config.trainer.fp8 && !kernels::has_fp8(test::device()))
    GTEST_SKIP() << "needs a GPU of compute capability 8.9 or later: 8-bit products";
  const auto train = [&](Training& t) {
    if (!c.keep.empty()) t.model->set_recompute(c.keep);
    int seed = 0;
    for (int step = 0; step < steps; ++step) {
      std::vector<data::Batch> batches;
      for (int i = 0; i < c.accumulation; ++i) batches.push_back(t.batch(seed++));
      t.step(batches);
      c.between(t, step);
    }
  };
  Training plain(config), graph(config);
  plain.use(nullptr);
  train(plain);
  Tally tally;
  graph.use(std::make_unique<CountingRecorder>(graph.device, tally));
  train(graph);
  expect_same_bits(plain, graph);
  EXPECT_EQ(tally.recorded, c.accumulation > 1 ? 2 : 1) << "one that adds up, one that reduces";
  EXPECT_EQ(tally.launched, steps * c.accumulation - warm_up);
  EXPECT_NE(plain.losses.front(), plain.losses.back());
}

INSTANTIATE_TEST_SUITE_P(MicroSteps, Recorded, ::testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

// Attention's fastest backward sums in no fixed order, so here losses are close, not equal.
TEST(MicroSteps, RecordsTheFastestAttentionToo) {
  config::RunConfig config = tiny();
  config.model.dtype = config::DType::bf16;
  Training plain(config), graph(config);
  plain.use(nullptr);
  Tally tally;
  graph.use(std::make_unique<CountingRecorder>(graph.device, tally));
  for (int step = 0; step < steps; ++step) {
    plain.step({plain.batch(step % 4)});
    graph.step({graph.batch(step % 4)});
  }
  EXPECT_EQ(tally.launched, steps - warm_up);
  for (std::size_t i = 0; i < plain.losses.size(); ++i) EXPECT_NEAR(plain.losses[i], graph.losses[i], 0.02 * plain.losses[i]) << i;
}

TEST(MicroSteps, GiveTheirMemoryToAnEvaluationThatNeedsIt) {
  const test::Deterministic deterministic;
  Training plain(tiny()), graph(tiny());
  plain.use(nullptr);
  Tally tally;
  graph.use(std::make_unique<CountingRecorder>(graph.device, tally));
  for (int step = 0; step < steps; ++step) {
    for (Training* t : {&plain, &graph}) {
      t->step({t->batch(step), t->batch(100 + step)});
      t->micro_steps->make_room(t->ranks, step == 6 ? std::int64_t{1} << 61 : 1);
      t->decoder().loss_sum(data::text(t->batch(7, 2, 24)).tokens, data::text(t->batch(8, 2, 24)).targets);
      poison_free_memory(t->device);
    }
  }
  expect_same_bits(plain, graph);
  EXPECT_EQ(tally.recorded, 4) << "both once more after step 6";
  EXPECT_EQ(tally.launched, 2 * steps - warm_up);
}

// Sums over ranks that need the host, such as those through its memory.
class ThroughTheHost : public comm::Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  comm::Work all_reduce(const at::Tensor&, comm::Reduce) override { return {}; }
  comm::Work broadcast(const at::Tensor&, int) override { return {}; }
  comm::Work all_gather(const at::Tensor&, const at::Tensor&) override { return {}; }
  comm::Work reduce_scatter(const at::Tensor&, const at::Tensor&, comm::Reduce) override { return {}; }
  comm::Work all_to_all(const at::Tensor&, const at::Tensor&) override { return {}; }
  comm::Work send(const at::Tensor&, int) override { return {}; }
  comm::Work recv(const at::Tensor&, int) override { return {}; }
};

TEST(MicroSteps, AReductionThatNeedsTheHostIsNotRecorded) {
  const test::Deterministic deterministic;
  Training plain(tiny()), graph(tiny(), std::make_shared<ThroughTheHost>());
  plain.use(nullptr);
  Tally tally;
  graph.use(std::make_unique<CountingRecorder>(graph.device, tally));
  for (int step = 0; step < steps; ++step)
    for (Training* t : {&plain, &graph}) t->step({t->batch(2 * step), t->batch(2 * step + 1)});
  expect_same_bits(plain, graph);
  EXPECT_EQ(tally.recorded, 1);
  EXPECT_GT(tally.launched, 0);
  EXPECT_FALSE(graph.micro_steps->replayed()) << "the last micro-step reduces";
}

// Ranks that can be recorded, and agree or do not.
class Agreeing final : public ThroughTheHost {
 public:
  Agreeing(const Tally& tally, bool others_can) : tally_(tally), others_can_(others_can) {}
  bool recordable() const override { return true; }
  comm::Work all_reduce(const at::Tensor& tensor, comm::Reduce op) override {
    if (op != comm::Reduce::min) return {};
    recorded_before.push_back(tally_.recorded);
    if (!others_can_) tensor.fill_(0);
    return {};
  }
  std::vector<int> recorded_before;  // each agreement

 private:
  const Tally& tally_;
  const bool others_can_;
};

// A recording that failed later would leave the other ranks to launch their reduction alone.
TEST(MicroSteps, EverythingIsRecordedBeforeRanksAgree) {
  const test::Deterministic deterministic;
  for (const bool others_can : {true, false}) {
    Tally tally;
    const auto transport = std::make_shared<Agreeing>(tally, others_can);
    Training plain(tiny()), graph(tiny(), transport);
    plain.use(nullptr);
    graph.use(std::make_unique<CountingRecorder>(graph.device, tally));
    for (int step = 0; step < steps; ++step)
      for (Training* t : {&plain, &graph}) t->step({t->batch(2 * step), t->batch(2 * step + 1)});
    expect_same_bits(plain, graph);
    EXPECT_EQ(transport->recorded_before, std::vector<int>{2}) << "one that adds up, one that reduces";
    EXPECT_EQ(tally.recorded, 2);
    EXPECT_EQ(tally.launched, others_can ? 2 * steps - warm_up : 0) << "where one rank cannot, none does";
  }
}

// On CUDA the device counts, in graphs too; a run's page shows by these marks that it moves.
TEST(MicroSteps, MarkProgressRecordedOrNot) {
  for (const bool mark_blocks : {false, true}) {
    const std::uint64_t marks = mark_blocks ? 2 * std::uint64_t(tiny().model.num_layers) + 1 : 1;
    Training t(tiny());
    Tally tally;
    const auto progress = kernels::make_progress(t.device);
    t.use({.recorder = std::make_unique<CountingRecorder>(t.device, tally),
           .warm_up = warm_up,
           .progress = progress,
           .mark_blocks = mark_blocks});
    for (std::uint64_t step = 0; step < steps; ++step) {
      t.step({t.batch(int(2 * step)), t.batch(int(2 * step) + 1)});
      EXPECT_EQ(progress->count(), 2 * (step + 1) * marks) << "after step " << step;  // losses are read, so the device has come by
    }
    EXPECT_GT(tally.launched, 0);
  }
}

TEST(MicroSteps, BlocksAreMarkedWhereThatCostsNothing) {
  config::RunConfig small = tiny(), large = tiny();
  large.model.hidden_size = 4096;
  large.model.intermediate_size = 14336;
  large.model.num_layers = 32;
  EXPECT_TRUE(blocks_are_long(small, 64, at::kCPU));
  EXPECT_FALSE(blocks_are_long(small, 1 << 16, at::Device(at::kCUDA, 0)));
  EXPECT_FALSE(blocks_are_long(large, 256, at::Device(at::kCUDA, 0)));
  EXPECT_TRUE(blocks_are_long(large, 16384, at::Device(at::kCUDA, 0)));
}

class Spoilt : public ::testing::TestWithParam<int> {};

// Where a recording fails, training goes on kernel by kernel and nothing is lost: not a gradient, not the memory.
TEST_P(Spoilt, RecordingsAreGivenUp) {
  const test::Deterministic deterministic;
  Training plain(tiny()), graph(tiny());
  plain.use(nullptr);
  Tally tally;
  const at::Tensor number = at::ones({}, at::TensorOptions().device(graph.device));
  const std::vector<std::function<void()>> ways = {
      [] { throw std::runtime_error("a library says no"); },
      [] { C10_THROW_ERROR(OutOfMemoryError, "no memory"); },
      [&] {
        if (graph.device.is_cpu()) throw std::runtime_error("only a device can refuse to wait");
        number.item();  // waits for the device, which a recording stream refuses
      },
  };
  graph.use(std::make_unique<CountingRecorder>(graph.device, tally, ways[std::size_t(GetParam())]));
  for (int step = 0; step < steps; ++step)
    for (Training* t : {&plain, &graph}) {
      t->step({t->batch(2 * step), t->batch(2 * step + 1)});
      poison_free_memory(t->device);
    }
  expect_same_bits(plain, graph);
  EXPECT_EQ(tally.recorded, 1) << "it is not tried again";
  EXPECT_EQ(tally.launched, 0);
}
INSTANTIATE_TEST_SUITE_P(MicroSteps, Spoilt, ::testing::Values(0, 1, 2));

TEST(MicroSteps, AreRecordedWhereThatIsPossible) {
  const auto recorder = [](const std::function<void(config::RunConfig&)>& change) {
    config::RunConfig config = tiny();
    change(config);
    return graph_recorder_for(config, test::device()) != nullptr;
  };
  EXPECT_EQ(recorder([](auto&) {}), test::device().is_cuda());
  EXPECT_FALSE(recorder([](auto& c) { c.trainer.cuda_graphs = false; }));
  EXPECT_FALSE(recorder([](auto& c) { c.trainer.offload_checkpoints = true; }));
  EXPECT_FALSE(recorder([](auto& c) { c.monitor.profile_steps = 3; }));
  EXPECT_FALSE(recorder([](auto& c) { c.parallel.shard = config::ShardKind::full; }));
}

}  // namespace
}  // namespace lockstep::train
