// Bytes as they are held; of quantized scales also what stands beside them.
#include "rank/hub/send_unit.h"

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "rank/model/weights/quantized.h"

namespace lockstep::hub {
namespace {

// What codes of scales stand for: a map of 256 numbers and an offset.
void send_maps(const model::Unit& unit, int from, const LoadingRanks& ranks) {
  std::vector<std::pair<model::QuantizedMatrix*, std::size_t>> nested;
  for (std::size_t leaf = 0; leaf < unit.spec().leaves.size(); ++leaf) {
    model::QuantizedMatrix* matrix = unit.quantized(leaf);
    for (std::size_t piece = 0; matrix != nullptr && piece < unit.spec().leaves[leaf].pieces.size(); ++piece)
      if (matrix->piece(piece).outer.defined()) nested.emplace_back(matrix, piece);
  }
  if (nested.empty()) return;
  const at::Tensor& map = nested.front().first->piece(nested.front().second).map;
  const std::int64_t numbers = map.numel();
  const at::Tensor rows = at::empty({static_cast<std::int64_t>(nested.size()), numbers + 1}, map.options());
  for (std::size_t i = 0; i < nested.size(); ++i) {
    const kernels::QuantizedBlocks& held = nested[i].first->piece(nested[i].second);
    const at::Tensor row = rows[static_cast<std::int64_t>(i)];
    row.narrow(0, 0, numbers).copy_(held.map);
    row[numbers].fill_(held.offset);
  }
  ranks.send(rows, from, unit.name() + ": scales of scales");
  for (std::size_t i = 0; i < nested.size(); ++i) {
    kernels::QuantizedBlocks blocks = nested[i].first->piece(nested[i].second);
    const at::Tensor row = rows[static_cast<std::int64_t>(i)];
    blocks.map = row.narrow(0, 0, numbers);
    blocks.offset = row[numbers].item<float>();
    nested[i].first->assign_beside(nested[i].second, blocks);
  }
}

}  // namespace

void send_unit(const model::Unit& unit, int from, const LoadingRanks& ranks) {
  base::check(unit.shard().has_value(), "groups of ranks are replicas of shards");
  const at::Tensor& held = unit.shard()->packed ? unit.weights_to_gather() : unit.exact();
  if (held.numel() > 0) ranks.send(held, from, "weights of " + unit.name());
  unit.shard()->packed ? send_maps(unit, from, ranks) : unit.refresh_weights();
}

}  // namespace lockstep::hub
