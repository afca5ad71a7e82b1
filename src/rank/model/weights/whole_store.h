// A store whose units lie whole in this rank's memory: there is nothing to open.
#pragma once

#include <functional>
#include <vector>

#include "rank/model/weights/store.h"
#include "rank/model/weights/unit.h"

namespace lockstep::model {

class WholeStore : public Store {
 public:
  // Units and adapters in forward order, which must outlive it. adapters: empty, or one a unit, null where it has none.
  explicit WholeStore(std::vector<Unit*> units, std::vector<Unit*> adapters = {});
  WholeStore(const WholeStore&) = delete;

  // Called where a leaf is complete; one at most.
  void listen(std::function<void(std::size_t unit, std::size_t leaf)> listener) { listener_ = std::move(listener); }
  // To be called when gradients have moved.
  virtual void look_again();

  Unit& unit(std::size_t unit) const { return *units_[unit]; }
  std::span<Unit* const> model_units() const { return std::span(units_).first(model_units_); }

  std::size_t units() const override { return units_.size(); }
  std::optional<std::size_t> adapters_of(std::size_t unit) const override { return adapters_of_[unit]; }
  const UnitSpec& spec(std::size_t unit) const override { return units_[unit]->spec(); }
  const layout::FlatLayout& flat(std::size_t unit) const override { return units_[unit]->flat(); }
  bool trained(std::size_t unit) const override { return units_[unit]->trainable(); }
  at::TensorOptions options(std::size_t unit) const override { return units_[unit]->weights().options(); }
  void open(std::size_t, const Pass&) override {}
  void close(std::size_t, const Pass&) override {}
  const at::Tensor& weight(std::size_t unit, std::size_t leaf) const override { return units_[unit]->weight(leaf); }
  const at::Tensor& gradient(std::size_t unit, std::size_t leaf) const override { return units_[unit]->gradient(leaf); }
  const QuantizedMatrix* quantized(std::size_t unit, std::size_t leaf) const override { return units_[unit]->quantized(leaf); }
  void assign(std::size_t unit, std::size_t leaf, const at::Tensor& values) override;
  void complete(std::size_t unit, std::size_t leaf) override {
    if (listener_ && trained(unit)) listener_(unit, leaf);
  }
  std::span<const HeldSlice> updates() const override { return all_; }
  std::span<const HeldSlice> counts() const override { return all_; }
  std::span<const HeldSlice> saves() const override { return all_; }
  std::vector<std::int64_t> cuts(std::size_t) const override { return {}; }
  bool owns(std::size_t, std::int64_t) const override { return true; }
  at::Tensor whole_gradients(std::size_t unit) const override { return units_[unit]->gradients(); }
  at::Tensor own_share(std::size_t, const at::Tensor& whole) const override { return whole; }

 private:
  std::vector<Unit*> units_;  // those of the model, then those of adapters that there are
  std::size_t model_units_;
  std::vector<std::optional<std::size_t>> adapters_of_;
  std::vector<HeldSlice> all_;
  std::function<void(std::size_t, std::size_t)> listener_;
};

}  // namespace lockstep::model
