// Types and words of reductions.
#include "rank/parallel/wire.h"

#include <algorithm>
#include <span>

#include "base/text.h"

namespace lockstep::parallel {

at::ScalarType wire_type(const config::ParallelConfig& options, at::ScalarType weights, at::ScalarType gradients) {
  switch (options.reduce_dtype) {
    case config::ReduceDType::automatic: return weights;
    case config::ReduceDType::f32: return at::kFloat;
    case config::ReduceDType::gradient: return gradients;
  }
  throw base::Bug("a type of the wire that has no name");
}

void add_names(std::vector<std::string>& names, const model::LeafSpec& leaf) {
  for (const model::Piece& piece : leaf.pieces) names.push_back(piece.name);
}

base::UserError without_gradient(int rank, const std::vector<std::string>& names) {
  return base::run_error("parallel",
                         "rank {}: {} parameters got no gradient in this step: {}. If the model leaves them out on purpose, set "
                         "parallel.find_unused_parameters=true; otherwise they are not connected to the loss.",
                         rank, names.size(), base::join(std::span(names).first(std::min<std::size_t>(names.size(), 8)), ", "));
}

}  // namespace lockstep::parallel
