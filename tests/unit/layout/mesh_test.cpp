// Where ranks lie on a mesh, and who is in whose group.
#include "layout/spread/mesh.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::layout {
namespace {

using Ranks = std::vector<int>;

TEST(MeshShape, CountsTheInnermostAxisFirst) {
  const MeshShape mesh{{Axis::pipeline, 2}, {Axis::shard, 3}, {Axis::tensor, 2}};
  EXPECT_EQ(mesh.ranks(), 12);
  EXPECT_EQ(mesh.coordinate(7, Axis::tensor), 1);
  EXPECT_EQ(mesh.coordinate(7, Axis::shard), 0);
  EXPECT_EQ(mesh.coordinate(7, Axis::pipeline), 1);
  EXPECT_EQ(mesh.coordinate(7, Axis::replicate), 0);
  EXPECT_EQ(mesh.members(7, std::array{Axis::tensor}), (Ranks{6, 7}));
  EXPECT_EQ(mesh.members(7, std::array{Axis::shard}), (Ranks{7, 9, 11}));
  EXPECT_EQ(mesh.members(7, std::array{Axis::pipeline}), (Ranks{1, 7}));
  EXPECT_EQ(mesh.members(7, std::array{Axis::replicate}), (Ranks{7}));
  EXPECT_EQ(to_text(mesh), "pipeline 2 x shard 3 x tensor 2");
  EXPECT_EQ(to_text(MeshShape{}), "1 rank");
}

TEST(MeshShape, ReplicasAreEveryone) {
  const MeshShape mesh{{Axis::replicate, 5}};
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(mesh.members(rank, data_axes), (Ranks{0, 1, 2, 3, 4}));
    EXPECT_EQ(mesh.members(rank, loss_axes), (Ranks{0, 1, 2, 3, 4}));
  }
}

// Of every set of axes: each rank is in one group, and all of a group see the same one.
TEST(MeshShape, GroupsPartTheRanks) {
  const MeshShape mesh{{Axis::pipeline, 2}, {Axis::replicate, 3}, {Axis::shard, 2}, {Axis::context, 2}, {Axis::tensor, 2}};
  const std::vector<std::vector<Axis>> sets = {
      {Axis::shard}, {data_axes.begin(), data_axes.end()}, {loss_axes.begin(), loss_axes.end()}, {}};
  for (const std::vector<Axis>& axes : sets) {
    std::size_t size = 1;
    for (const Axis axis : axes) size *= static_cast<std::size_t>(mesh.along(axis));
    std::set<Ranks> groups;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      const Ranks members = mesh.members(rank, axes);
      EXPECT_EQ(members.size(), size);
      groups.insert(members);
      for (const int other : members) EXPECT_EQ(mesh.members(other, axes), members);
    }
    EXPECT_EQ(groups.size() * size, static_cast<std::size_t>(mesh.ranks()));
  }
}

}  // namespace
}  // namespace lockstep::layout
