// Coordinates of ranks counted as digits, the innermost axis being the last.
#include "layout/spread/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/text.h"

namespace lockstep::layout {
namespace {

constexpr std::array all_axes{Axis::pipeline, Axis::replicate, Axis::shard, Axis::context, Axis::tensor};
static_assert(all_axes.size() == axis_count);

}  // namespace

std::string_view name_of(Axis axis) {
  switch (axis) {
    case Axis::pipeline: return "pipeline";
    case Axis::replicate: return "replicate";
    case Axis::shard: return "shard";
    case Axis::context: return "context";
    case Axis::tensor: return "tensor";
  }
  throw base::Bug("an axis that has no name");
}

MeshShape::MeshShape(std::initializer_list<Length> lengths) {
  lengths_.fill(1);
  for (const auto& [axis, ranks] : lengths) {
    base::check(ranks >= 1, "an axis has at least one rank");
    lengths_[static_cast<std::size_t>(axis)] = ranks;
  }
}

int MeshShape::ranks() const { return std::accumulate(lengths_.begin(), lengths_.end(), 1, std::multiplies()); }

int MeshShape::stride(Axis axis) const {
  return std::accumulate(lengths_.begin() + static_cast<std::ptrdiff_t>(axis) + 1, lengths_.end(), 1, std::multiplies());
}

int MeshShape::coordinate(int rank, Axis axis) const { return rank / stride(axis) % along(axis); }

std::vector<int> MeshShape::members(int rank, std::span<const Axis> axes) const {
  int corner = rank;  // the same coordinates, but 0 along the axes
  for (const Axis axis : axes) corner -= coordinate(rank, axis) * stride(axis);
  std::vector<int> found{corner};
  for (const Axis axis : axes) {
    const std::vector<int> before = std::exchange(found, {});
    for (int at = 0; at < along(axis); ++at)
      for (const int one : before) found.push_back(one + at * stride(axis));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string to_text(const MeshShape& shape) {
  std::vector<std::string> words;
  for (const Axis axis : all_axes)
    if (shape.along(axis) > 1) words.push_back(fmt::format("{} {}", name_of(axis), shape.along(axis)));
  return words.empty() ? "1 rank" : base::join(words, " x ");
}

}  // namespace lockstep::layout
