// How ranks lie on the axes along which a model and its data are spread: arithmetic alone, the same on every rank and in the launcher.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::layout {

// Outermost first: ranks next to each other differ along `tensor`, whose groups have to be within a machine.
enum class Axis { pipeline, replicate, shard, context, tensor };
inline constexpr std::size_t axis_count = 5;
std::string_view name_of(Axis axis);

// Axes whose ranks share something. data: they split the samples of a global batch. loss: their losses and counts add up.
inline constexpr std::array data_axes{Axis::replicate, Axis::shard};
inline constexpr std::array loss_axes{Axis::replicate, Axis::shard, Axis::context};

class MeshShape {
 public:
  struct Length {
    Axis axis;
    int ranks;
  };
  // Axes that are left out have one rank.
  MeshShape(std::initializer_list<Length> lengths);

  int along(Axis axis) const { return lengths_[static_cast<std::size_t>(axis)]; }
  int ranks() const;
  // Where a rank is along an axis.
  int coordinate(int rank, Axis axis) const;
  // The ranks that differ from `rank` along these axes alone, itself included, ascending.
  std::vector<int> members(int rank, std::span<const Axis> axes) const;

  bool operator==(const MeshShape&) const = default;

 private:
  int stride(Axis axis) const;

  std::array<int, axis_count> lengths_;
};

// "replicate 2 x shard 4"; "1 rank" where no axis is longer.
std::string to_text(const MeshShape& shape);

}  // namespace lockstep::layout
