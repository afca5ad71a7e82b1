// Each collective, over real processes, against what it must give.
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>

#include <chrono>
#include <iostream>
#include <thread>

#include "base/error.h"
#include "config/config.h"
#include "rank/comm/transport.h"
#include "support/ranks/run_ranks.h"

namespace lockstep {
namespace {

using comm::Reduce;
using testing::run_ranks;

at::Tensor numbers(comm::World& world, std::int64_t count, double first) {
  return at::arange(count, at::TensorOptions().dtype(at::kDouble)).add(first).to(world.device());
}
std::vector<double> values(const at::Tensor& tensor) {
  const at::Tensor host = tensor.to(at::kCPU, at::kDouble).contiguous();
  return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel()};
}

// Ranks, and what carries their bytes. `automatic` is memory that ranks share on CPUs, and NCCL on GPUs.
class Collectives : public ::testing::TestWithParam<std::tuple<int, config::Backend>> {
 protected:
  static int ranks() { return std::get<0>(GetParam()); }
  static config::Backend backend() { return ranks() == 1 ? config::Backend::automatic : std::get<1>(GetParam()); }
};

TEST_P(Collectives, AllReduceSums) {
  const int ranks = this->ranks();
  const auto results = run_ranks(ranks, backend(), [](comm::World& world) {
    const at::Tensor mine = numbers(world, 5, 10.0 * world.place().rank);
    world.everyone().all_reduce(mine, Reduce::sum, "test").wait();
    return values(mine);
  });
  for (const auto& result : results) {
    ASSERT_EQ(result.size(), 5u);
    for (int i = 0; i < 5; ++i) EXPECT_DOUBLE_EQ(result[i], ranks * i + 10.0 * ranks * (ranks - 1) / 2);
  }
}

TEST_P(Collectives, AllReduceMaxAndMin) {
  const int ranks = this->ranks();
  const auto results = run_ranks(ranks, backend(), [](comm::World& world) {
    const at::Tensor high = numbers(world, 1, world.place().rank), low = numbers(world, 1, world.place().rank);
    world.everyone().all_reduce(high, Reduce::max, "test").wait();
    world.everyone().all_reduce(low, Reduce::min, "test").wait();
    return std::vector<double>{values(high)[0], values(low)[0]};
  });
  for (const auto& result : results) EXPECT_EQ(result, (std::vector<double>{ranks - 1.0, 0.0}));
}

TEST_P(Collectives, ReducesHalfPrecisionInF32) {
  const int ranks = this->ranks();
  const auto results = run_ranks(ranks, backend(), [](comm::World& world) {
    // 256 + 1 is not a bf16 number: summed in bf16 the ones would vanish one by one.
    const at::Tensor mine =
        at::full({3}, world.place().rank == 0 ? 256.0 : 1.0, at::TensorOptions().dtype(at::kBFloat16).device(world.device()));
    world.everyone().all_reduce_as(at::kFloat, mine, Reduce::sum, "test").wait();
    return values(mine);
  });
  const double exact = 256.0 + (ranks - 1);
  const double expected = at::full({}, exact, at::kFloat).to(at::kBFloat16).item<double>();
  for (const auto& result : results) EXPECT_EQ(result, std::vector<double>(3, expected));
}

// Large and small numbers that cancel: another order, or a running sum in 16 bits, gives other bits.
at::Tensor hard_to_add(int rank, std::int64_t count, at::ScalarType type) {
  const double height = type == at::kHalf ? 3e3 : 1e7;
  const at::Tensor index = at::arange(count, at::TensorOptions().dtype(at::kDouble));
  const at::Tensor large = index.remainder(7).add(1).mul(rank % 2 == 0 ? height : -height), small = index.add(3.0 * rank).sin();
  return at::where(index.remainder(3).eq(rank % 3), large, small).to(type);
}

TEST_P(Collectives, HostSumsAreInRankOrder) {
  const int ranks = this->ranks();
  // Few numbers, many, a count that ranks do not divide, and more than are summed at once.
  const auto each = [](const auto& body) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
      for (const std::int64_t count : {7, 40'000, 40'001}) body(type, count);
    body(at::kFloat, 600'001);
  };
  const auto host = backend() == config::Backend::automatic ? config::Backend::cpu : backend();
  const auto results = run_ranks(ranks, host, [&](comm::World& world) {
    const comm::Group& group = world.everyone();
    std::vector<double> sums;
    each([&](at::ScalarType type, std::int64_t count) {
      const at::Tensor all = hard_to_add(group.rank(), count, type).to(world.device());
      const at::Tensor part = at::empty({count}, all.options());
      group.reduce_scatter(part, hard_to_add(group.rank(), count * group.size(), type).to(world.device()), Reduce::sum, "test").wait();
      group.all_reduce(all, Reduce::sum, "test").wait();
      for (const at::Tensor& tensor : {all, part}) {
        for (double value : values(tensor)) sums.push_back(value);
      }
    });
    return sums;
  });
  const auto in_order = [ranks](std::int64_t count, at::ScalarType type) {
    const at::Tensor sum = hard_to_add(0, count, type).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    for (int rank = 1; rank < ranks; ++rank) sum.add_(hard_to_add(rank, count, type).to(at::kFloat));
    return sum.to(type);
  };
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<double> expected;
    each([&](at::ScalarType type, std::int64_t count) {
      for (double value : values(in_order(count, type))) expected.push_back(value);
      for (double value : values(in_order(count * ranks, type).narrow(0, rank * count, count))) expected.push_back(value);
    });
    EXPECT_TRUE(results[static_cast<std::size_t>(rank)] == expected) << "rank " << rank;
  }
}

TEST_P(Collectives, BroadcastGatherScatter) {
  const int ranks = this->ranks();
  const auto results = run_ranks(ranks, backend(), [ranks](comm::World& world) {
    const comm::Group& group = world.everyone();
    const at::Tensor given = numbers(world, 2, 100.0 * group.rank());
    group.broadcast(given, ranks - 1, "test").wait();
    const at::Tensor whole = numbers(world, 2 * ranks, 0), mine = numbers(world, 2, 10.0 * group.rank());
    group.all_gather(whole, mine, "test").wait();
    const at::Tensor part = numbers(world, 2, 0);
    group.reduce_scatter(part, whole.clone(), Reduce::sum, "test").wait();
    const at::Tensor received = numbers(world, ranks, 0);
    group.all_to_all(received, numbers(world, ranks, 10.0 * group.rank()), "test").wait();
    std::vector<double> all = values(given);
    for (const at::Tensor& tensor : {whole, part, received}) {
      for (double value : values(tensor)) all.push_back(value);
    }
    return all;
  });
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<double> expected{100.0 * (ranks - 1), 100.0 * (ranks - 1) + 1};
    for (int r = 0; r < ranks; ++r) expected.insert(expected.end(), {10.0 * r, 10.0 * r + 1});
    expected.insert(expected.end(), {ranks * 10.0 * rank, ranks * (10.0 * rank + 1)});
    for (int r = 0; r < ranks; ++r) expected.push_back(10.0 * r + rank);
    EXPECT_EQ(results[rank], expected) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(config::Backend::automatic, config::Backend::gloo)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), config::name_of(std::get<1>(info.param)));
                         });

TEST(PointToPoint, PassesAlongTheLine) {
  const auto results = run_ranks(3, config::Backend::automatic, [](comm::World& world) {
    const comm::Group& group = world.everyone();
    const at::Tensor value = numbers(world, 1, group.rank() == 0 ? 7 : 0);
    if (group.rank() > 0) group.recv(value, group.rank() - 1, "test").wait();
    if (group.rank() < 2) group.send(value.add(1), group.rank() + 1, "test").wait();
    return values(value);
  });
  EXPECT_EQ(results[2], std::vector<double>{9});
}

TEST(Failures, LostRankIsAnErrorThatNamesTheOperation) {
  const auto outcomes = testing::try_ranks(2, config::Backend::gloo, [](comm::World& world) -> std::vector<double> {
    world.everyone().meet("both are connected");
    if (world.place().rank == 1) std::_Exit(9);
    world.everyone().all_reduce(numbers(world, 1000, 0), Reduce::sum, "gradients of block 3").wait();
    return {};
  });
  EXPECT_EQ(outcomes[1].exit_code, 9);
  EXPECT_EQ(outcomes[0].exit_code, 1);
  EXPECT_NE(outcomes[0].log.find("[comm] rank 0: all_reduce 2 of group world (gradients of block 3) failed"), std::string::npos)
      << outcomes[0].log;
}

// Operations fail after four seconds here; a rank that comes seven seconds late is waited for.
TEST(Meeting, HasNoDeadline) {
  const auto outcomes = testing::try_ranks(
      2, config::Backend::gloo,
      [](comm::World& world) {
        for (int round = 0; round < 3; ++round) {
          if (round == 1 && world.place().rank == 0) std::this_thread::sleep_for(std::chrono::seconds(7));
          world.everyone().meet("a test");
        }
        const at::Tensor mine = numbers(world, 1, 1);
        world.everyone().all_reduce(mine, Reduce::sum, "test").wait();
        return values(mine);
      },
      60, [](comm::World::Options& options) { options.timeout_s = 4; });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.log;
    EXPECT_EQ(outcome.numbers, std::vector<double>{2});
  }
}

TEST(Meeting, ARankWithoutASignOfLifeIsNamed) {
  const auto outcomes = testing::try_ranks(
      3, config::Backend::gloo,
      [](comm::World& world) -> std::vector<double> {
        if (world.place().rank == 2) std::_Exit(9);
        if (world.place().rank == 1) std::this_thread::sleep_for(std::chrono::hours(1));  // at work, and its signs of life show it
        world.everyone().meet("a test");
        return {};
      },
      20, [](comm::World::Options& options) { options.timeout_s = options.silence_s = 5; });
  EXPECT_EQ(outcomes[0].exit_code, 1);
  EXPECT_NE(outcomes[0].log.find("meeting 1 of group world (a test) failed: stopped waiting for the other ranks: rank 2 has given no sign "
                                 "of life for 5 s"),
            std::string::npos)
      << outcomes[0].log;
}

// Stands in for an NCCL that is well on some ranks: there its start waits for the others.
std::vector<testing::RankOutcome> with_nccl(int ranks, config::Backend backend, std::function<std::shared_ptr<comm::Transport>(int)> nccl) {
  return testing::try_ranks(
      ranks, backend,
      [](comm::World& world) {
        const at::Tensor mine = numbers(world, 1, 1);
        world.everyone().all_reduce(mine, Reduce::sum, "test").wait();
        std::cout << "fallback: " << world.fallback() << std::endl;
        return std::vector<double>{values(mine)[0], static_cast<double>(world.backend())};
      },
      20, [nccl](comm::World::Options& options) { options.nccl = [nccl, rank = options.place.rank] { return nccl(rank); }; });
}

TEST(Nccl, WhereOneRankCannotUseItNoneDoes) {
  const auto outcomes = with_nccl(3, config::Backend::automatic, [](int rank) -> std::shared_ptr<comm::Transport> {
    if (rank == 1) throw base::machine_error("comm", "NCCL cannot connect rank 1 on cuda:1: a test says so.");
    std::this_thread::sleep_for(std::chrono::hours(1));
    return nullptr;
  });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.log;
    EXPECT_EQ(outcome.numbers, (std::vector<double>{3, static_cast<double>(config::Backend::cpu)})) << outcome.log;
    EXPECT_NE(outcome.log.find("fallback: NCCL cannot connect rank 1 on cuda:1: a test says so. All ranks fall back to"), std::string::npos)
        << outcome.log;
  }
}

TEST(Nccl, WhereAllRanksCanAllDo) {
  const auto outcomes = with_nccl(3, config::Backend::automatic, [](int) { return comm::make_single_transport(); });
  for (const auto& outcome : outcomes)
    EXPECT_EQ(outcome.numbers, (std::vector<double>{1, static_cast<double>(config::Backend::nccl)})) << outcome.log;
}

// Rank 1's first so many connections fail, as one does that a busy machine refuses. The others would wait for it.
std::vector<testing::RankOutcome> with_gloo_refused(int times) {
  return testing::try_ranks(
      3, config::Backend::gloo,
      [](comm::World& world) {
        const at::Tensor mine = numbers(world, 1, 1);
        world.everyone().all_reduce(mine, Reduce::sum, "test").wait();
        return values(mine);
      },
      20,
      [times](comm::World::Options& options) {
        if (options.place.rank != 1) return;
        options.before_gloo = [left = std::make_shared<int>(times)] {
          if ((*left)-- > 0) throw base::run_error("comm", "rank 1 could not connect to all other ranks by gloo: a test says so.");
        };
      });
}

TEST(Gloo, AllTryAgainWhereOneRankWasRefused) {
  for (const auto& outcome : with_gloo_refused(1)) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.log;
    EXPECT_EQ(outcome.numbers, std::vector<double>{3}) << outcome.log;
  }
}

TEST(Gloo, AllSayWhichRankCannotConnect) {
  for (const auto& outcome : with_gloo_refused(2)) {
    EXPECT_EQ(outcome.exit_code, 1) << outcome.log;
    EXPECT_NE(outcome.log.find("[comm] rank 1 could not connect to all other ranks by gloo: a test says so."), std::string::npos)
        << outcome.log;
  }
}

TEST(Failures, SingleIsForOneRank) {
  const auto outcomes = testing::try_ranks(2, config::Backend::single, [](comm::World&) -> std::vector<double> { return {}; });
  EXPECT_NE(outcomes[0].log.find("--sync-backend single is for one rank, but there are 2"), std::string::npos) << outcomes[0].log;
}

}  // namespace
}  // namespace lockstep
