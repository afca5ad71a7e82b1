// The groups a rank is in: whoever talks to other ranks asks for those it means.
#pragma once

#include <array>

#include "layout/spread/mesh.h"
#include "rank/comm/comm.h"

namespace lockstep::comm {

// Makes all its groups at once, in one order on every rank, because connecting is collective. Groups of the same ranks are one group with
// one connection: on a mesh of replicas alone there is none but the world's.
class Mesh {
 public:
  // Collective. The world must outlive it.
  Mesh(World& world, const layout::MeshShape& shape);

  const layout::MeshShape& shape() const { return shape_; }
  // Along one axis: the ranks that differ from this one in that coordinate alone.
  const Group& along(layout::Axis axis) const { return *along_[static_cast<std::size_t>(axis)]; }
  // Along the shard axis, each on a connection of its own: what is gathered does not wait for what is reduced.
  const Group& gathers() const { return *gathers_; }
  const Group& reductions() const { return *reductions_; }
  // Who split the samples of a global batch.
  const Group& data() const { return *data_; }
  // Whose losses and counts add up.
  const Group& loss() const { return *loss_; }
  // Who agrees and stops.
  const Group& everyone() const { return *everyone_; }

 private:
  layout::MeshShape shape_;
  std::array<const Group*, layout::axis_count> along_{};
  const Group *data_, *loss_, *everyone_, *gathers_, *reductions_;
};

}  // namespace lockstep::comm
