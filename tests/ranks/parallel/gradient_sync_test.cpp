// Gradients summed over ranks: against one rank, against LibTorch's own reducer, for any bucket size, with unused parameters.
#include <gtest/gtest.h>

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/CPUGeneratorImpl.h>

#include "base/error.h"
#include "config/config.h"
#include "rank/kernels/graph.h"
#include "rank/model/projection/adapter.h"
#include "rank/model/model.h"
#include "rank/model/weights/quantized.h"
#include "rank/parallel/gradient_sums.h"
#include "rank/parallel/gradient_sync.h"
#include "rank/parallel/replicate.h"
#include "support/reducer/reducer_oracle.h"
#include "support/ranks/run_ranks.h"
#include "support/reference/reference_decoder.h"

namespace lockstep {
namespace {

using testing::run_ranks;
using testing::try_ranks;

config::ModelConfig tiny() {
  return config::with_defaults({.hidden_size = 32, .num_layers = 2, .num_heads = 4, .kv_heads = 2, .vocab_size = 61, .max_seq_len = 16});
}

// Global batch of `ranks` x 2 samples: the same numbers whoever asks.
std::pair<at::Tensor, at::Tensor> global_batch(int ranks) {
  const auto generator = at::detail::createCPUGenerator(7);
  const at::Tensor tokens = at::randint(0, 61, {2 * ranks, 17}, generator, at::TensorOptions().dtype(at::kLong));
  return {tokens.slice(1, 0, 16).contiguous(), tokens.slice(1, 1, 17).contiguous()};
}

struct Net {
  explicit Net(const config::ParallelConfig& options, at::Device device = at::kCPU, at::ScalarType type = at::kFloat)
      : Net(options, {.device = device, .weight_dtype = type, .gradient_dtype = type}) {}
  Net(const config::ParallelConfig& options, const model::UnitStorage& storage)
      : replica(parallel::make_replica(model::decoder_units(tiny()), storage)),
        model(tiny(), {}, *replica.store),
        sync(replica.gradients.front().memory, *replica.store, options) {
    model::initialize(replica.units, 3);
  }
  parallel::Replica replica;
  model::Decoder model;
  parallel::GradientSync sync;
};

std::vector<double> values(const at::Tensor& tensor) {
  const at::Tensor host = tensor.to(at::kCPU, at::kDouble).contiguous();
  return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel()};
}

void expect_close(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  double scale = 0;
  for (double value : b) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance * scale) << "element " << i;
}

struct Case {
  int ranks;
  double bucket_cap_mb;
};
class Buckets : public ::testing::TestWithParam<Case> {};

TEST_P(Buckets, GradientsEqualOneRankWithTheWholeBatch) {
  const auto [ranks, cap] = GetParam();
  const auto results = run_ranks(ranks, config::Backend::automatic, [ranks = ranks, cap = cap](comm::World& world) {
    Net net({.bucket_cap_mb = cap}, world.device());
    for (const auto& bucket : net.sync.buckets()) EXPECT_LE(bucket.gradients.nbytes(), std::max<std::size_t>(cap * 1024 * 1024, 1024));
    const auto [tokens, targets] = global_batch(ranks);
    const std::int64_t first = 2 * world.place().rank;
    net.sync.arm(world.everyone());
    const auto mine = [&](const at::Tensor& all) { return all.narrow(0, first, 2).contiguous().to(world.device()); };
    net.model.forward_backward(mine(tokens), mine(targets), at::ones({}).to(world.device()));
    net.sync.finish(world.everyone());
    return values(net.replica.gradients.front().memory);
  });
  Net alone({});
  const auto [tokens, targets] = global_batch(ranks);
  alone.model.forward_backward(tokens, targets, at::ones({}));
  for (const auto& result : results) expect_close(result, values(alone.replica.gradients.front().memory), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Buckets, ::testing::Values(Case{1, 25}, Case{2, 25}, Case{2, 0.001}, Case{3, 0.013}, Case{4, 0.05}));

// A backward with its reduction in one CUDA graph, between steps that run kernel by kernel; over NCCL where there is a GPU.
class RecordedReductions : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(RecordedReductions, EqualThoseThatAreNot) {
  const auto results = run_ranks(2, config::Backend::automatic, [type = GetParam()](comm::World& world) -> std::vector<double> {
    const double tolerance = type == at::kFloat ? 1e-6 : 0.02;
    const comm::Group& ranks = world.everyone();
    if (!ranks.recordable()) return {};
    Net net({.bucket_cap_mb = 0.01, .reduce_dtype = config::ReduceDType::f32}, world.device(), type);
    const auto [all_tokens, all_targets] = global_batch(2);
    const std::int64_t first = 2 * world.place().rank;
    const at::Tensor tokens = all_tokens.narrow(0, first, 2).contiguous().to(world.device());
    const at::Tensor targets = all_targets.narrow(0, first, 2).contiguous().to(world.device());
    const at::Tensor scale = at::ones({}).to(world.device());
    const auto plain_step = [&] {
      net.replica.gradients.front().memory.zero_();
      net.sync.arm(ranks);
      net.model.forward_backward(tokens, targets, scale);
      net.sync.finish(ranks);
      return values(net.replica.gradients.front().memory);
    };
    plain_step();
    const auto expected = plain_step();
    const auto recorder = kernels::make_graph_recorder(world.device());
    std::unique_ptr<kernels::Graph> graph;
    {
      const comm::Group::Recording nothing_runs_yet(ranks);
      net.sync.arm(ranks);
      net.model.release_buffers();
      graph = recorder->record([&] {
        net.model.forward_backward(tokens, targets, scale);
        net.sync.finish(ranks);
      });
    }
    for (int step = 0; step < 5; ++step) {
      net.replica.gradients.front().memory.zero_();
      net.sync.arm(ranks);
      net.sync.replay(ranks, [&] { graph->launch(); });
      net.sync.finish(ranks);
      expect_close(values(net.replica.gradients.front().memory), expected, tolerance);
      if (step % 2 == 0) expect_close(plain_step(), expected, tolerance);
    }
    return expected;
  });
  if (results.front().empty()) GTEST_SKIP() << "needs a GPU: without one there is nothing to record";
  EXPECT_EQ(results[0], results[1]);
}

INSTANTIATE_TEST_SUITE_P(Types, RecordedReductions, ::testing::Values(at::kFloat, at::kBFloat16));  // the latter summed in f32

TEST(GradientSync, EqualsLibTorchsReducer) {
  run_ranks(2, config::Backend::gloo, [](comm::World& world) -> std::vector<double> {
    Net net({.bucket_cap_mb = 0.01});
    const auto [all_tokens, all_targets] = global_batch(2);
    const at::Tensor tokens = all_tokens.narrow(0, 2 * world.place().rank, 2).contiguous();
    const at::Tensor targets = all_targets.narrow(0, 2 * world.place().rank, 2).contiguous();
    net.sync.arm(world.everyone());
    net.model.forward_backward(tokens, targets, at::ones({}));
    net.sync.finish(world.everyone());

    reference::Parameters parameters = reference::copy_parameters(net.replica.in_forward_order());
    testing::reduce_with_libtorch(world.place(), parameters, [&] { return reference::loss_sum(tiny(), parameters, tokens, targets); });
    for (const auto& unit : net.replica.units) {
      for (const auto& [name, view] : unit->pieces_of(unit->gradients())) {
        // The reducer averages; we sum.
        expect_close(values(view), values(parameters.at(name).grad().mul(2)), 1e-6);
      }
    }
    return {};
  });
}

// Two leaves; backward announces what it is told to.
struct TwoLeaves {
  explicit TwoLeaves(const config::ParallelConfig& options)
      : replica(parallel::make_replica(
            {{.name = "pair",
              .leaves = {{.name = "a", .pieces = {{"net.a.weight", {8, 8}}}}, {.name = "b", .pieces = {{"net.b.weight", {8, 8}}}}}}},
            {})),
        sync(replica.gradients.front().memory, *replica.store, options) {}
  void backward(bool uses_b) {
    replica.units[0]->gradient(0).add_(1);
    replica.store->complete(0, 0);
    if (!uses_b) return;
    replica.units[0]->gradient(1).add_(1);
    replica.store->complete(0, 1);
  }
  parallel::Replica replica;
  parallel::GradientSync sync;
};

TEST(GradientSync, UnusedParameterIsAnErrorThatNamesIt) {
  const auto outcomes = try_ranks(2, config::Backend::gloo, [](comm::World& world) -> std::vector<double> {
    TwoLeaves net({});
    net.sync.arm(world.everyone());
    net.backward(world.place().rank == 0);
    net.sync.finish(world.everyone());
    return {};
  });
  EXPECT_NE(outcomes[1].exit_code, 0);
  EXPECT_NE(outcomes[1].log.find("rank 1: 1 parameters got no gradient in this step: net.b.weight"), std::string::npos) << outcomes[1].log;
}

TEST(GradientSync, UnusedParametersAreFineWhenAskedFor) {
  const auto results = run_ranks(2, config::Backend::gloo, [](comm::World& world) {
    TwoLeaves net({.find_unused_parameters = true});
    net.sync.arm(world.everyone());
    net.backward(world.place().rank == 0);
    net.sync.finish(world.everyone());
    return std::vector<double>{net.replica.units[0]->gradient(0).sum().item<double>(),
                               net.replica.units[0]->gradient(1).sum().item<double>()};
  });
  for (const auto& result : results) EXPECT_EQ(result, (std::vector<double>{128, 64}));
}

TEST(GradientSync, AccumulationMicroStepsTalkToNobody) {
  const auto results = run_ranks(2, config::Backend::gloo, [](comm::World& world) {
    TwoLeaves net({});
    for (int micro = 0; micro < 3; ++micro) {
      if (micro == 2) net.sync.arm(world.everyone());
      net.backward(true);
      if (micro < 2) {
        EXPECT_EQ(net.replica.gradients.front().memory.sum().item<double>(), 128.0 * (micro + 1));
      }
    }
    net.sync.finish(world.everyone());
    return std::vector<double>{net.replica.gradients.front().memory.sum().item<double>()};
  });
  for (const auto& result : results) EXPECT_EQ(result, std::vector<double>{2 * 3 * 128});
}

// f32 sums of a 16-bit model: rounded once, on their way, in more buckets than there may be copies of.
TEST(GradientSync, WideSumsTravelInTheWeightsType) {
  const auto results = run_ranks(2, config::Backend::automatic, [](comm::World& world) {
    Net net({.bucket_cap_mb = 0.001}, {.device = world.device(), .weight_dtype = at::kBFloat16, .gradient_dtype = at::kFloat});
    EXPECT_GT(net.sync.buckets().size(), 8u);
    const auto [tokens, targets] = global_batch(2);
    const auto mine = [&](const at::Tensor& all) { return all.narrow(0, 2 * world.place().rank, 2).contiguous().to(world.device()); };
    for (int micro = 0; micro < 3; ++micro) {
      if (micro == 2) net.sync.arm(world.everyone());
      net.model.forward_backward(mine(tokens), mine(targets), at::ones({}).to(world.device()));
    }
    net.sync.finish(world.everyone());
    EXPECT_TRUE(net.replica.gradients.front().memory.equal(net.replica.gradients.front().memory.to(at::kBFloat16).to(at::kFloat)))
        << "the wire carries 16 bits";
    return values(net.replica.gradients.front().memory);
  });
  Net alone({}, {.weight_dtype = at::kBFloat16, .gradient_dtype = at::kFloat});
  const auto [tokens, targets] = global_batch(2);
  for (int micro = 0; micro < 3; ++micro) alone.model.forward_backward(tokens, targets, at::ones({}));
  for (const auto& result : results) expect_close(result, values(alone.replica.gradients.front().memory), 1e-2);
}

// 16-bit gradients with f32 sums behind them: ranks that flush, settle and then reduce, against one that sums in f32.
TEST(GradientSync, FlushedSumsOfTwoRanksEqualOneRank) {
  constexpr int micro_steps = 300;
  const auto results = run_ranks(2, config::Backend::automatic, [](comm::World& world) {
    Net net({.bucket_cap_mb = 0.01}, world.device(), at::kBFloat16);
    const auto held = net.replica.store->updates();
    parallel::GradientSums sums(*net.replica.store, {held.begin(), held.end()}, world.place().rank == 0 ? 0 : 1 << 30);  // one on the host
    const auto [tokens, targets] = global_batch(2);
    const auto mine = [&](const at::Tensor& all) { return all.narrow(0, 2 * world.place().rank, 2).contiguous().to(world.device()); };
    for (int micro = 0; micro < micro_steps; ++micro) {
      sums.make_way();
      net.model.forward_backward(mine(tokens), mine(targets), at::ones({}).to(world.device()));
      sums.added(net.model.often_added(), net.model.additions());
    }
    sums.settle();
    net.sync.start_all(world.everyone());
    net.sync.finish(world.everyone());
    return std::vector<double>{net.replica.gradients.front().memory.to(at::kDouble).norm().item<double>()};
  });
  Net alone({}, {.weight_dtype = at::kBFloat16, .gradient_dtype = at::kFloat});
  const auto [tokens, targets] = global_batch(2);
  alone.model.forward_backward(tokens, targets, at::ones({}));
  const double expected = micro_steps * alone.replica.gradients.front().memory.to(at::kDouble).norm().item<double>();
  for (const auto& result : results) EXPECT_NEAR(result.front() / expected, 1, 5e-3);
}

TEST(Replicas, StartFromRankZerosWeights) {
  run_ranks(3, config::Backend::gloo, [](comm::World& world) -> std::vector<double> {
    parallel::Replica replica = parallel::make_replica(model::decoder_units(tiny()), {});
    model::initialize(replica.units, 100 + world.place().rank);
    parallel::broadcast_weights(world.everyone(), replica);
    parallel::verify_equal(world.everyone(), replica, 0);
    parallel::Replica expected = parallel::make_replica(model::decoder_units(tiny()), {});
    model::initialize(expected.units, 100);
    for (std::size_t u = 0; u < expected.units.size(); ++u) EXPECT_TRUE(replica.units[u]->weights().equal(expected.units[u]->weights()));
    return {};
  });
}

TEST(Replicas, DivergenceNamesRankAndUnit) {
  const auto outcomes = try_ranks(3, config::Backend::gloo, [](comm::World& world) -> std::vector<double> {
    parallel::Replica replica = parallel::make_replica(model::decoder_units(tiny()), {});
    model::initialize(replica.units, 5);
    if (world.place().rank == 2) replica.units[1]->weight(0)[0][0] += 1e-6;
    parallel::verify_equal(world.everyone(), replica, 40);
    return {};
  });
  for (const auto& outcome : outcomes) {
    EXPECT_NE(outcome.log.find("step 40: the weights of rank 2 differ from rank 0's, first in block 0"), std::string::npos) << outcome.log;
  }
}

// Of two groups of two: those of a group hold different shards, rank 3 holds what rank 1 holds.
TEST(Replicas, DivergenceWithinAGroupNamesRanksAsTheWorldDoes) {
  const auto outcomes = try_ranks(4, config::Backend::gloo, [](comm::World& world) -> std::vector<double> {
    const comm::Mesh mesh(world, {{layout::Axis::replicate, 2}, {layout::Axis::shard, 2}});
    config::RunConfig config;
    config.parallel.shard = config::ShardKind::full;
    parallel::Replica replica = parallel::make_sharded(model::decoder_units(tiny()), {}, {}, mesh, layout::zero_3, config);
    model::initialize(replica.units, 5);
    parallel::verify_equal(mesh.along(layout::Axis::replicate), replica, 40);
    if (world.place().rank == 3) replica.units[1]->exact()[0] += 1e-3;
    parallel::verify_equal(mesh.along(layout::Axis::replicate), replica, 41);
    return {};
  });
  for (const std::size_t rank : {1u, 3u}) {
    const std::string& log = outcomes[rank].log;
    EXPECT_NE(log.find("step 41: the weights of rank 3 differ from rank 1's, first in block 0"), std::string::npos) << log;
  }
  for (const std::size_t rank : {0u, 2u}) EXPECT_EQ(outcomes[rank].log.find("differ"), std::string::npos) << outcomes[rank].log;
}

TEST(Replicas, FrozenWeightsAreComparedInEveryForm) {
  run_ranks(2, config::Backend::gloo, [](comm::World& world) -> std::vector<double> {
    for (const auto quantization : {model::Quantization::none, model::Quantization::nf4, model::Quantization::int8}) {
      const config::LoraConfig lora{.enabled = true, .rank = 2};
      parallel::Replica replica =
          parallel::make_adapted_replica(model::decoder_units(tiny()), model::adapter_units(tiny(), lora), {.quantization = quantization});
      model::initialize(replica.units, 5);
      parallel::verify_frozen_equal(world.everyone(), replica);
      const model::Unit& block = *replica.units[2];
      if (world.place().rank == 1) {
        if (const model::QuantizedMatrix* matrix = block.quantized(0)) {
          const at::Tensor code = matrix->piece(0).codes.view({-1})[7];
          code.fill_(code.item<int>() == 3 ? 4 : 3);
        } else {
          block.weight(0)[0][0] += 1e-6;
        }
      }
      try {
        parallel::verify_frozen_equal(world.everyone(), replica);
        ADD_FAILURE() << "a changed weight went unnoticed";
      } catch (const base::UserError& error) {
        EXPECT_NE(std::string(error.what()).find("the frozen weights of rank 1 differ from rank 0's, in block 1."), std::string::npos)
            << error.what();
      }
    }
    return {};
  });
}

}  // namespace
}  // namespace lockstep
