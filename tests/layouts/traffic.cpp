// Sizes of units from their specs, times what the gather table says.
#include "layouts/traffic.h"

#include "layout/decoder.h"
#include "layout/memory/memory.h"
#include "layout/spread/placement.h"

namespace lockstep::layouts {

layout::Traffic planned_traffic(const config::RunConfig& config, int ranks) {
  const layout::Placement placement = layout::placement_of(config);
  const bool trained = !config.lora.enabled;
  const int sharers = layout::sharing_ranks(config, ranks);
  if (sharers == 1) return {};
  std::vector<layout::UnitBytes> bytes;
  for (const layout::UnitSpec& unit : layout::decoder_units(config.model)) {
    const layout::UnitCut cut = layout::cut_of(unit, layout::model_holding(config), config.trainer.optimizer, sharers);
    const std::int64_t received = cut.room * cut.element_bytes * (sharers - 1);
    bytes.push_back({received, cut.packed ? 0 : received});
  }
  const auto schedule = layout::plain_schedule(config.trainer.gradient_accumulation);
  return layout::traffic_of(layout::gather_table(schedule, {bytes.size(), trained}, placement), bytes);
}

}  // namespace lockstep::layouts
