// Sizes of units from their specs, times what the gather table says.
#include "layouts/traffic.h"

#include "layout/decoder.h"
#include "layout/memory/memory.h"
#include "layout/memory/shards.h"

namespace lockstep::layouts {

layout::Traffic planned_traffic(const config::RunConfig& config, int ranks) {
  const layout::Placement placement = layout::placement_of(config);
  const bool trained = !config.lora.enabled;
  const auto sharers = static_cast<int>(ranks / config.parallel.replicate);
  if (placement == layout::replicas || sharers == 1 || (!trained && placement.weights == layout::Spread::whole)) return {};
  const std::int64_t size = config.model.dtype == config::DType::f32 ? 4 : 2;
  std::vector<layout::UnitBytes> bytes;
  for (const layout::UnitSpec& unit : layout::decoder_units(config.model)) {
    const layout::Holding holding = layout::model_holding(config);
    if (layout::is_packed(unit, holding)) {
      bytes.push_back({layout::shard_elements({.elements = layout::packed_bytes(unit, holding)}, sharers) * (sharers - 1), 0});
      continue;
    }
    const layout::FlatLayout flat = layout::flat_layout(unit, holding);
    const std::int64_t room = layout::shard_elements(layout::cuttable(unit, flat, config.trainer.optimizer), sharers);
    bytes.push_back({room * size * (sharers - 1), room * size * (sharers - 1)});
  }
  const auto schedule = layout::plain_schedule(config.trainer.gradient_accumulation);
  return layout::traffic_of(layout::gather_table(schedule, {bytes.size(), trained}, placement), bytes);
}

}  // namespace lockstep::layouts
