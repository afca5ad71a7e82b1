// Weights of matrices times what is done with each.
#include "layout/flops.h"

#include "layout/adapters/adapters.h"

namespace lockstep::layout {
namespace {

constexpr double trained = 6, frozen = 4;

// Weights of the matrices in a unit of adapters: A and B of blocks, or a head that is trained whole.
double matrix_weights(const UnitSpec& unit) {
  double weights = 0;
  for (const LeafSpec& leaf : unit.leaves) {
    if (leaf.role == Role::token_embedding) continue;  // looked up, not multiplied
    for (const Piece& piece : leaf.pieces) {
      if (piece.shape.size() == 2) weights += static_cast<double>(piece.shape[0]) * static_cast<double>(piece.shape[1]);
    }
  }
  return weights;
}

}  // namespace

Flops flops_per_token(const config::ModelConfig& model, const config::LoraConfig& lora, std::int64_t seq_len) {
  const Dims d(model);
  double blocks = 0;
  for (std::int64_t layer = 0; layer < d.layers; ++layer)
    for (const BlockMatrix& matrix : block_matrices(model, layer)) blocks += double(matrix.elements());
  const double head = double(d.hidden) * double(d.vocab);
  // Scores and their product with the values, causal half: two operands, so backward has two products for each of forward's.
  const double attention = trained * double(d.layers) * 2.0 * double(d.q_width()) * double(seq_len) / 2;
  if (!lora.enabled) return {.projections = trained * blocks, .others = trained * head + attention};

  double adapters = 0;
  const auto units = adapter_units(model, lora);
  for (std::size_t i = 1; i + 1 < units.size(); ++i) adapters += units[i] ? matrix_weights(*units[i]) : 0;
  const bool head_is_trained = units.back() && matrix_weights(*units.back()) > 0;
  return {.projections = frozen * blocks, .others = (head_is_trained ? trained : frozen) * head + trained * adapters + attention};
}

}  // namespace lockstep::layout
