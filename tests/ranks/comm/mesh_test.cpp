// Groups along the axes of a mesh, as real processes.
#include "rank/comm/mesh.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "support/ranks/run_ranks.h"

namespace lockstep {
namespace {

using comm::Reduce;
using layout::Axis;
using testing::run_ranks;

double sum_over(const comm::Group& group, double mine) {
  const at::Tensor number = at::full({1}, mine, at::TensorOptions().device(group.device()));
  group.all_reduce(number, Reduce::sum, "test").wait();
  return number.item<double>();
}

TEST(Mesh, SumsAlongItsAxes) {
  // Ranks 0 1 2 | 3 4 5: two replicas of three shards.
  const auto results = run_ranks(6, config::Backend::automatic, [](comm::World& world) {
    const comm::Mesh mesh(world, {{Axis::replicate, 2}, {Axis::shard, 3}});
    const double mine = std::pow(10, world.place().rank);
    mesh.along(Axis::shard).meet("test");
    return std::vector<double>{sum_over(mesh.along(Axis::shard), mine), sum_over(mesh.along(Axis::replicate), mine),
                               sum_over(mesh.data(), mine), sum_over(mesh.along(Axis::tensor), mine),
                               double(mesh.along(Axis::shard).rank())};
  });
  for (int rank = 0; rank < 6; ++rank) {
    const double shard = rank < 3 ? 111 : 111000, replicate = std::pow(10, rank % 3) * 1001;
    EXPECT_EQ(results[std::size_t(rank)], (std::vector<double>{shard, replicate, 111111, std::pow(10, rank), double(rank % 3)}))
        << "rank " << rank;
  }
}

TEST(Mesh, OfReplicasNeedsNoGroupButTheWorlds) {
  const auto results = run_ranks(3, config::Backend::automatic, [](comm::World& world) {
    const comm::Mesh mesh(world, {{Axis::replicate, 3}});
    const bool same =
        &mesh.data() == &world.everyone() && &mesh.loss() == &world.everyone() && &mesh.along(Axis::replicate) == &world.everyone();
    return std::vector<double>{same ? 1.0 : 0.0, double(mesh.along(Axis::shard).size())};
  });
  for (const auto& result : results) EXPECT_EQ(result, (std::vector<double>{1, 1}));
}

TEST(Mesh, GroupsWorkAtTheSameTime) {
  // Both groups' operations under way at once, waited for in another order than they were started in.
  const auto results = run_ranks(4, config::Backend::automatic, [](comm::World& world) {
    const comm::Mesh mesh(world, {{Axis::replicate, 2}, {Axis::shard, 2}});
    const auto options = at::TensorOptions().device(world.device());
    const at::Tensor a = at::full({100'000}, double(world.place().rank), options), b = a.clone();
    auto along_shard = mesh.along(Axis::shard).all_reduce(a, Reduce::sum, "shard");
    auto along_replicate = mesh.along(Axis::replicate).all_reduce(b, Reduce::sum, "replicate");
    along_replicate.wait();
    along_shard.wait();
    return std::vector<double>{a.mean().item<double>(), b.mean().item<double>()};
  });
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(results[std::size_t(rank)], (std::vector<double>{rank < 2 ? 1.0 : 5.0, rank % 2 == 0 ? 2.0 : 4.0})) << "rank " << rank;
}

}  // namespace
}  // namespace lockstep
