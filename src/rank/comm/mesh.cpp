// Asks the world for one group after another.
#include "rank/comm/mesh.h"

#include "base/error.h"

namespace lockstep::comm {

using layout::Axis;

Mesh::Mesh(World& world, const layout::MeshShape& shape) : shape_(shape), everyone_(&world.everyone()) {
  const int rank = world.place().rank;
  base::check(shape.ranks() == world.place().world_size, "a mesh has a place for every rank");
  const auto group = [&](std::string_view name, std::span<const Axis> axes) -> const Group* {
    return &world.group(name, shape.members(rank, axes));
  };
  data_ = group("data", layout::data_axes);
  loss_ = group("loss", layout::loss_axes);
  const auto place = [&](Axis axis) -> const Group*& { return along_[static_cast<std::size_t>(axis)]; };
  for (const Axis axis : {Axis::pipeline, Axis::replicate, Axis::context, Axis::tensor})
    place(axis) = group(name_of(axis), std::span(&axis, 1));
  const Axis shard = Axis::shard;
  if (shape.along(shard) == 1) {
    gathers_ = reductions_ = place(shard) = group(name_of(shard), std::span(&shard, 1));
    return;
  }
  const std::vector<int> sharers = shape.members(rank, std::span(&shard, 1));
  gathers_ = &world.own_group("gathers", sharers);
  reductions_ = place(shard) = &world.own_group("reductions", sharers);
}

}  // namespace lockstep::comm
