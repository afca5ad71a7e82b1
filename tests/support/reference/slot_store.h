// A store on one rank that holds layers' numbers where a sharded one would: in two slots that they take in turns. What is read or written
// outside of open and close is not there.
#pragma once

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "rank/model/weights/whole_store.h"

namespace lockstep::test {

// Over units that lie whole elsewhere; gradients go there when a unit is closed. Every unit but the first and the last takes slot i % 2.
class SlotStore final : public model::WholeStore {
 public:
  using WholeStore::WholeStore;

  void open(std::size_t unit, const model::Pass& pass) override {
    if (!rotates(unit)) return;
    Slot& slot = slot_of(unit);
    const model::Unit& whole = this->unit(unit);
    EXPECT_FALSE(slot.holds) << "unit " << unit << " is opened over unit " << slot.holds.value_or(0);
    slot.holds = unit;
    if (!views_[unit].weights.size()) make_views(unit, slot);
    slot.weights.narrow(0, 0, whole.elements()).copy_(whole.weights());
    if (whole.trainable() && pass.direction == model::Pass::Direction::backward)
      slot.gradients.narrow(0, 0, whole.elements()).copy_(whole.gradients());
    ++opened;
  }
  void close(std::size_t unit, const model::Pass& pass) override {
    if (!rotates(unit)) return;
    Slot& slot = slot_of(unit);
    const model::Unit& whole = this->unit(unit);
    EXPECT_EQ(slot.holds, unit);
    if (whole.trainable() && pass.direction == model::Pass::Direction::backward)
      whole.gradients().copy_(slot.gradients.narrow(0, 0, whole.elements()));
    slot.holds.reset();
    slot.weights.fill_(std::numeric_limits<double>::quiet_NaN());
    if (slot.gradients.defined()) slot.gradients.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  const at::Tensor& weight(std::size_t unit, std::size_t leaf) const override {
    return rotates(unit) ? views_.at(unit).weights.at(leaf) : WholeStore::weight(unit, leaf);
  }
  const at::Tensor& gradient(std::size_t unit, std::size_t leaf) const override {
    return rotates(unit) ? views_.at(unit).gradients.at(leaf) : WholeStore::gradient(unit, leaf);
  }

  int opened = 0;

 private:
  struct Slot {
    at::Tensor weights, gradients;
    std::optional<std::size_t> holds;
  };
  struct Views {
    std::vector<at::Tensor> weights, gradients;
  };

  bool rotates(std::size_t unit) const { return unit > 0 && unit + 1 < model_units().size(); }
  Slot& slot_of(std::size_t unit) {
    Slot& slot = slots_[unit % slots_.size()];
    if (!slot.weights.defined()) {
      std::int64_t most = 0;
      for (std::size_t i = 1; i + 1 < model_units().size(); ++i) most = std::max(most, this->unit(i).elements());
      const model::Unit& like = this->unit(unit);
      slot.weights = at::full({most}, std::numeric_limits<double>::quiet_NaN(), like.weights().options());
      if (like.trainable()) slot.gradients = at::full({most}, std::numeric_limits<double>::quiet_NaN(), like.gradients().options());
      views_.resize(units());
    }
    return slot;
  }
  void make_views(std::size_t unit, const Slot& slot) {
    const auto& leaves = spec(unit).leaves;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const auto view = [&](const at::Tensor& flat) {
        if (!flat.defined() || !this->flat(unit).offsets[i]) return at::Tensor();
        return flat.narrow(0, *this->flat(unit).offsets[i], leaves[i].elements()).view(leaves[i].shape());
      };
      views_[unit].weights.push_back(view(slot.weights));
      views_[unit].gradients.push_back(view(slot.gradients));
    }
  }

  std::array<Slot, 2> slots_;
  std::vector<Views> views_;
};

}  // namespace lockstep::test
