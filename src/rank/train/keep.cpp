// From the setting to a policy for every block.
#include "rank/train/keep.h"

#include <algorithm>

#include "base/error.h"
#include "rank/model/adapter.h"
#include "rank/model/fp8.h"

namespace lockstep::train {
namespace {

std::int64_t fp8_bytes(const config::RunConfig& config, std::int64_t rows) {
  return config.trainer.fp8 ? model::fp8_bytes(config.model, rows) : 0;
}

}  // namespace

std::vector<model::Keep> keep_for(const config::RunConfig& config, const model::MicroBatch& batch, std::int64_t element_size,
                                  std::int64_t available_bytes) {
  const auto blocks = static_cast<std::size_t>(config.model.num_layers);
  switch (config.trainer.recompute) {
    case config::Recompute::none: return std::vector(blocks, model::Keep::all);
    case config::Recompute::norms: return std::vector(blocks, model::Keep::matmuls);
    case config::Recompute::qkv: return std::vector(blocks, model::Keep::without_qkv);
    case config::Recompute::blocks: {
      std::vector keep(blocks, model::Keep::matmuls);
      for (std::size_t i = 0; i < blocks; i += static_cast<std::size_t>(config.trainer.recompute_every)) keep[i] = model::Keep::input;
      return keep;
    }
    case config::Recompute::automatic: return model::choose_keep(config.model, batch, element_size, available_bytes);
  }
  throw base::Bug("a policy that has no name");
}

std::int64_t reserved_bytes(const config::RunConfig& config, std::int64_t rows, std::int64_t element_size, int ranks) {
  return std::min(ranks - 1, 1) * model::ranks_reserve_bytes + fp8_bytes(config, rows) +
         model::adapter_bytes(config.model, config.lora, rows, element_size);
}

std::int64_t evaluation_bytes(const config::RunConfig& config, std::int64_t rows, std::int64_t element_size) {
  return fp8_bytes(config, rows) + model::evaluation_bytes(config.model, rows, element_size);
}

}  // namespace lockstep::train
