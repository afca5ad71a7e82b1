// One rank of a world that is not there: every byte of a result is written, operations last as long as their link says, and beside compute.
#include "rank/comm/modelled.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "rank/comm/mesh.h"
#include "rank/comm/transport.h"
#include "rank/kernels/hold.h"

namespace lockstep::comm {
namespace {

class Sleeper final : public Holder {
 public:
  void begin(const at::Tensor& clock, std::string_view) override { kernels::begin_hold(clock); }
  void hold(const at::Tensor& clock, std::string_view, double seconds) override {
    held += seconds;
    kernels::hold(clock, seconds, {});
  }
  double held = 0;
};

TEST(ModelledLink, WritesEveryByteOfAResult) {
  const auto link = make_modelled_transport({2, 4}, {}, std::make_shared<Sleeper>(), at::kCPU);
  const at::Tensor mine = at::arange(6, at::kFloat), gathered = at::full({24}, NAN);
  link->all_gather(gathered, mine).wait();
  for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(at::equal(gathered.narrow(0, 6 * rank, 6), mine));
  const at::Tensor sent = at::arange(24, at::kFloat), received = at::full({24}, NAN), share = at::full({6}, NAN);
  link->all_to_all(received, sent).wait();
  EXPECT_TRUE(at::equal(received.view({4, 6}).sum(0), sent.narrow(0, 12, 6))) << "the sum over ranks is this rank's part";
  link->reduce_scatter(share, sent, Reduce::sum).wait();
  EXPECT_TRUE(at::equal(share, sent.narrow(0, 12, 6)));
  const at::Tensor sum = at::arange(5, at::kFloat);
  link->all_reduce(sum, Reduce::sum).wait();
  EXPECT_TRUE(at::equal(sum, at::arange(5, at::kFloat)));
  link->shut_down();
}

TEST(ModelledLink, LastsAsLongAsItsBytesTakeAndBesideWhoeverStartedIt) {
  auto sleeper = std::make_shared<Sleeper>();
  const auto link = make_modelled_transport({0, 4}, {.bytes_per_second = 24e3, .latency_s = 0.01}, sleeper, at::kCPU);
  const at::Tensor mine = at::arange(100, at::kFloat), whole = at::full({400}, NAN);
  const std::int64_t start = base::now_ns();
  Work work = link->all_gather(whole, mine);
  EXPECT_LT(base::seconds_since(start), 0.05) << "started, not done";
  work.wait();
  EXPECT_GE(base::seconds_since(start), 0.06 - 1e-4) << "10 ms, and 3 x 400 bytes at 24 kB/s";
  EXPECT_NEAR(sleeper->held, 0.06, 1e-9);
  link->all_reduce(mine, Reduce::sum).wait();
  EXPECT_NEAR(sleeper->held, 0.06 + 0.01 + 2 * 0.75 * 400 / 24e3, 1e-9);
  link->shut_down();
}

TEST(ModelledLink, GroupsOfAMachineAndBetweenMachines) {
  const ModelledLinks links{.within = {1e9, 0}, .between = {1e6, 0}, .machine = 8, .holder = std::make_shared<Sleeper>()};
  EXPECT_EQ(links.of({0, 1, 7}).bytes_per_second, 1e9);
  EXPECT_EQ(links.of({8, 15}).bytes_per_second, 1e9);
  EXPECT_EQ(links.of({0, 8}).bytes_per_second, 1e6);
  World world({.place = {.rank = 9, .world_size = 32}, .links = links}, std::make_shared<journal::PageWriter>("", 9));
  const Mesh mesh(world, layout::MeshShape{{layout::Axis::replicate, 4}, {layout::Axis::shard, 8}});
  EXPECT_EQ(mesh.gathers().size(), 8);
  EXPECT_EQ(mesh.gathers().rank(), 1);
  EXPECT_EQ(mesh.along(layout::Axis::replicate).size(), 4);
  EXPECT_TRUE(mesh.everyone().all_agree(true, "nothing"));
  mesh.everyone().meet("nobody waits for ranks that are not there");
}

}  // namespace
}  // namespace lockstep::comm
