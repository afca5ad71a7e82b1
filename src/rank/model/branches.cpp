// Which adapter goes with which matrix.
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
    : unit(unit),
      adapters(adapters),
      attention(dims, BlockLeaves(dims), unit, adapter_of(model, adapters, lora, layer, 0), adapter_of(model, adapters, lora, layer, 1)),
      feed_forward(dims, unit, adapter_of(model, adapters, lora, layer, 2), adapter_of(model, adapters, lora, layer, 3)) {}

void Branches::open(const Pass& pass) const {
  unit.open(pass);
  if (adapters) adapters->open(pass);
}

void Branches::close(const Pass& pass) const {
  if (adapters) adapters->close(pass);
  unit.close(pass);
}

void Branches::reset_magnitudes(ProjectionScratch& scratch) const {
  for (const auto& part : {attention.projections(), feed_forward.projections()})
    for (const Projection* projection : part)
      if (projection->adapter() && projection->adapter()->is_dora()) projection->adapter()->reset_magnitude(projection->weight(scratch));
}

}  // namespace lockstep::model
