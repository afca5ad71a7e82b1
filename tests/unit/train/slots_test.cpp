// Layers whose numbers lie in two rotating slots, recorded and replayed: addresses never change, so a graph finds them again.
#include "support/reference/slot_store.h"
#include "unit/train/micro_steps_fixture.h"

namespace lockstep::train {
namespace {

// Trains over two slots instead of whole units.
struct SlotTraining : Training {
  explicit SlotTraining(const config::RunConfig& run)
      : Training(run), slots(replica.in_forward_order(), replica.adapters_in_forward_order()) {
    slots.listen([this](std::size_t unit, std::size_t leaf) { replica.store->complete(unit, leaf); });
    model = std::make_unique<model::Decoder>(config.model, config.lora, slots);
  }
  test::SlotStore slots;
};

TEST(Slots, RecordedOrNotGiveTheBitsOfWholeUnits) {
  const test::Deterministic deterministic;
  for (const layout::Recompute policy : {layout::Recompute::none, layout::Recompute::blocks}) {
    Training whole(tiny());
    SlotTraining plain(tiny()), graph(tiny());
    Tally tally;
    whole.use(nullptr);
    plain.use(nullptr);
    graph.use(std::make_unique<CountingRecorder>(graph.device, tally));
    for (Training* t : {&whole, static_cast<Training*>(&plain), static_cast<Training*>(&graph)}) {
      t->model->set_recompute({policy, policy, policy});
      for (int step = 0; step < steps; ++step) t->step({t->batch(2 * step), t->batch(2 * step + 1)});
    }
    expect_same_bits(whole, plain);
    expect_same_bits(whole, graph);
    EXPECT_EQ(tally.launched, 2 * steps - warm_up);
    EXPECT_GT(plain.slots.opened, 0);
  }
}

}  // namespace
}  // namespace lockstep::train
