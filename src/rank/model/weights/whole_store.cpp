// Numbers the units and hands out what they hold.
#include "rank/model/weights/whole_store.h"

#include "base/error.h"

namespace lockstep::model {

WholeStore::WholeStore(std::vector<Unit*> units, std::vector<Unit*> adapters)
    : units_(std::move(units)), model_units_(units_.size()), adapters_of_(units_.size()) {
  base::check(adapters.empty() || adapters.size() == model_units_, "every unit has its adapters or none");
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    if (adapters[i] == nullptr) continue;
    adapters_of_[i] = units_.size();
    units_.push_back(adapters[i]);
  }
  adapters_of_.resize(units_.size());
  look_again();
}

void WholeStore::assign(std::size_t unit, std::size_t leaf, const at::Tensor& values) {
  const Unit& held = *units_[unit];
  held.exact().narrow(0, held.offset(leaf), values.numel()).copy_(values.reshape({-1}));
  held.refresh_weights();
}

void WholeStore::look_again() {
  all_.clear();
  for (std::size_t i = units_.size(); i-- > 0;) {
    const Unit& unit = *units_[i];
    if (unit.trainable())
      all_.push_back({i, unit.held_begin(), unit.held_count(), unit.exact(), unit.held_weights(), unit.held_gradients()});
  }
}

}  // namespace lockstep::model
