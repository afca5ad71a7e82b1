// Memory that ranks share: more bytes than it holds, ranks that go, stay silent or mean something else, and ranks that cannot have any.
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "rank/comm/comm.h"
#include "support/ranks/run_ranks.h"

namespace lockstep {
namespace {

using comm::Reduce;
using testing::try_ranks;

at::Tensor filled(std::int64_t count, double value) { return at::full({count}, value, at::kDouble); }
double first(const at::Tensor& tensor) { return tensor[0].item<double>(); }
double last(const at::Tensor& tensor) { return tensor[-1].item<double>(); }

bool says(const testing::RankOutcome& outcome, std::string_view text) { return outcome.log.find(text) != std::string::npos; }

TEST(SharedMemory, CarriesMoreThanItHolds) {
  constexpr std::int64_t count = 300'001;  // 2.4 MB a slice, through rings of 512 KiB
  const auto results = testing::run_ranks(3, config::Backend::cpu, [](comm::World& world) {
    const comm::Group& group = world.everyone();
    const int rank = group.rank();
    const at::Tensor sent = at::arange(3 * count, at::kDouble).add(rank * 1e7), received = at::zeros({3 * count}, at::kDouble);
    comm::Work exchange = group.all_to_all(received, sent, "slices");
    const at::Tensor sum = filled(count, rank);
    comm::Work reduction = group.all_reduce(sum, Reduce::sum, "sum");  // queued behind the other one
    reduction.wait();
    exchange.wait();
    const at::Tensor nothing = at::zeros({0}, at::kDouble);
    group.all_reduce(nothing, Reduce::max, "nothing").wait();
    std::vector<double> ends{first(sum), last(sum)};
    for (int from = 0; from < 3; ++from) {
      ends.push_back(first(received.narrow(0, from * count, count)));
      ends.push_back(last(received.narrow(0, from * count, count)));
    }
    return ends;
  });
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<double> expected{3, 3};
    for (int from = 0; from < 3; ++from)
      expected.insert(expected.end(),
                      {from * 1e7 + static_cast<double>(rank * count), from * 1e7 + static_cast<double>((rank + 1) * count - 1)});
    EXPECT_EQ(results[static_cast<std::size_t>(rank)], expected) << "rank " << rank;
  }
}

TEST(SharedMemory, ARankThatHasGoneIsNamed) {
  const auto begin = std::chrono::steady_clock::now();
  const auto outcomes = try_ranks(3, config::Backend::cpu, [](comm::World& world) -> std::vector<double> {
    world.everyone().meet("all are connected");
    if (world.place().rank == 2) std::_Exit(9);
    world.everyone().all_reduce(filled(1'000'000, 1), Reduce::sum, "gradients").wait();
    return {};
  });
  EXPECT_EQ(outcomes[0].exit_code, 1);
  EXPECT_TRUE(says(outcomes[0], "all_reduce 2 of group world (gradients) failed: rank 2 is gone")) << outcomes[0].log;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)) << "no deadline is waited for";
}

TEST(SharedMemory, ItsLastWordsArrive) {
  const auto outcomes = try_ranks(2, config::Backend::cpu, [](comm::World& world) {
    const comm::Group& group = world.everyone();
    group.meet("both are connected");
    if (group.rank() == 1) {
      group.send(filled(1000, 7), 0, "last words").wait();
      std::_Exit(0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const at::Tensor heard = filled(1000, 0);
    group.recv(heard, 1, "last words").wait();
    std::fprintf(stderr, "heard %g and %g\n", first(heard), last(heard));
    return std::vector<double>{};
  });
  EXPECT_TRUE(says(outcomes[0], "heard 7 and 7")) << outcomes[0].log;
}

TEST(SharedMemory, ARankThatStaysSilentIsGivenUp) {
  const auto outcomes = try_ranks(
      2, config::Backend::cpu,
      [](comm::World& world) -> std::vector<double> {
        world.everyone().meet("both are connected");
        if (world.place().rank == 1) std::this_thread::sleep_for(std::chrono::seconds(8));
        world.everyone().all_reduce(filled(1'000'000, 1), Reduce::sum, "gradients").wait();
        return {};
      },
      60, [](comm::World::Options& options) { options.timeout_s = 2; });
  EXPECT_TRUE(says(outcomes[0], "all_reduce 2 of group world (gradients) failed: Timed out: rank 1 has moved nothing for 2"))
      << outcomes[0].log;
}

TEST(SharedMemory, RanksThatMeanOtherSizesFindOut) {
  const auto outcomes = try_ranks(2, config::Backend::cpu, [](comm::World& world) -> std::vector<double> {
    const std::int64_t count = world.place().rank == 0 ? 10 : 20;
    world.everyone().all_gather(filled(2 * count, 0), filled(count, 1), "mine").wait();
    return {};
  });
  EXPECT_TRUE(says(outcomes[0], "rank 1 sent 160 bytes, 80 were expected")) << outcomes[0].log;
  EXPECT_TRUE(says(outcomes[1], "rank 0 sent 80 bytes, 160 were expected")) << outcomes[1].log;
}

// One rank may make no memory of that size: all of them talk by Gloo then.
TEST(SharedMemory, WhereOneRankHasNoneNobodyUsesIt) {
  const auto outcomes = try_ranks(
      3, config::Backend::cpu,
      [](comm::World& world) {
        const at::Tensor sum = filled(100'000, world.place().rank);
        world.everyone().all_reduce(sum, Reduce::sum, "sum").wait();
        return std::vector<double>{first(sum), last(sum)};
      },
      60,
      [](comm::World::Options& options) {
        if (options.place.rank != 1) return;
        const rlimit small{.rlim_cur = 64 << 10, .rlim_max = 64 << 10};
        ::signal(SIGXFSZ, SIG_IGN);
        ::setrlimit(RLIMIT_FSIZE, &small);
      });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.numbers, (std::vector<double>{3, 3})) << outcome.log;
    EXPECT_TRUE(says(outcome, "talks by Gloo: no memory is shared there (memory cannot be made: File too large)")) << outcome.log;
  }
}

}  // namespace
}  // namespace lockstep
