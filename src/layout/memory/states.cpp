// What optimizers keep of each parameter, and in how many bytes.
#include "base/ceil_div.h"
#include "base/error.h"
#include "layout/memory/memory.h"
#include "layout/spread/placement.h"

namespace lockstep::layout {
namespace {

// Of the weights that count: masters where there are some.
std::int64_t exact_bytes(const Holding& holding) {
  return holding.dtype == config::DType::f32 || holding.master ? f32_bytes : bytes_of(holding.dtype);
}

std::int64_t adamw_8bit_bytes(const HeldUnit& unit) {
  std::int64_t blocks = 0, small = 0;
  for (const LeafSpec& leaf : unit.spec.leaves) {
    for (const Piece& piece : leaf.pieces) {
      const std::int64_t count = piece.elements();
      if (count >= smallest_coded)
        blocks += base::ceil_div(count, state_block);
      else
        small += count;
    }
  }
  return 2 * ((blocks > 0 ? unit.flat.elements : 0) + f32_bytes * (blocks + small));
}

// Rows and columns of matrices, every number of vectors.
std::int64_t adafactor_bytes(const HeldUnit& unit) {
  std::int64_t numbers = 0;
  for (const LeafSpec& leaf : unit.spec.leaves) {
    for (const Piece& piece : leaf.pieces) {
      const std::int64_t count = piece.elements(), rows = piece.shape.front();
      numbers += piece.shape.size() >= 2 ? rows + count / rows : count;
    }
  }
  return f32_bytes * numbers;
}

std::int64_t muon_bytes(const HeldUnit& unit) {
  std::int64_t numbers = 0;
  for (const LeafSpec& leaf : unit.spec.leaves) {
    for (const Piece& piece : leaf.pieces) numbers += (updates_whole(config::Optimizer::muon, leaf, piece) ? 1 : 2) * piece.elements();
  }
  return exact_bytes(unit.holding) * numbers;
}

}  // namespace

std::int64_t state_bytes(const HeldUnit& unit, config::Optimizer method) {
  if (!unit.holding.trained) return 0;
  switch (method) {
    case config::Optimizer::adamw: return 2 * exact_bytes(unit.holding) * unit.flat.elements;
    case config::Optimizer::lion:
    case config::Optimizer::sgd: return exact_bytes(unit.holding) * unit.flat.elements;
    case config::Optimizer::adamw_8bit: return adamw_8bit_bytes(unit);
    case config::Optimizer::adafactor: return adafactor_bytes(unit);
    case config::Optimizer::muon: return muon_bytes(unit);
  }
  throw base::Bug("an optimizer whose states have no size");
}

}  // namespace lockstep::layout
