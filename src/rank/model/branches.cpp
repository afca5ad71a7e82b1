// Which adapter goes with which matrix, and what a pass opens.
#include "rank/model/branches.h"

namespace lockstep::model {
namespace {

std::optional<Adapter> adapter_of(const config::ModelConfig& model, const std::optional<StoredUnit>& adapters,
                                  const config::LoraConfig& lora, std::int64_t layer, std::size_t matrix) {
  if (!adapters) return std::nullopt;
  for (AdaptedMatrix& adapted : adapted_matrices(model, lora, layer)) {
    if (adapted.matrix == matrix) return Adapter(*adapters, std::move(adapted), lora, std::uint64_t(layer) * kBlockMatrices + matrix);
  }
  return std::nullopt;
}

}  // namespace

Branches::Branches(const config::ModelConfig& model, const Dims& dims, StoredUnit unit, std::optional<StoredUnit> adapters,
                   const config::LoraConfig& lora, std::int64_t layer)
    : dims_(dims),
      unit_(unit),
      attention_(dims, BlockLeaves(dims), unit, adapter_of(model, adapters, lora, layer, 0), adapter_of(model, adapters, lora, layer, 1)),
      feed_forward_(dims, unit, adapter_of(model, adapters, lora, layer, 2), adapter_of(model, adapters, lora, layer, 3)),
      adapters_(adapters) {}

void Branches::open(const Pass& pass) const {
  unit_.open(pass);
  if (adapters_) adapters_->open(pass);
}

void Branches::close(const Pass& pass) const {
  if (adapters_) adapters_->close(pass);
  unit_.close(pass);
}

void Branches::reset_magnitudes(ProjectionScratch& scratch) const {
  for (const auto& part : {attention_.projections(), feed_forward_.projections()})
    for (const Projection* projection : part)
      if (projection->adapter() && projection->adapter()->is_dora()) projection->adapter()->reset_magnitude(projection->weight(scratch));
}

AttentionPart::Again Branches::attention_again() const {
  using Again = AttentionPart::Again;
  return recompute_ == Recompute::qkv ? Again::projection : recompute_ == Recompute::norms ? Again::rotation : Again::nothing;
}

}  // namespace lockstep::model
