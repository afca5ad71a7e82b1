// Numbers the units and hands out what they hold.
#include "rank/model/weights/whole_store.h"

#include <algorithm>

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

std::vector<std::size_t> WholeStore::trained_units() const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < units_.size(); ++i)
    if (units_[i]->trainable()) found.push_back(i);
  return found;
}

void WholeStore::assign(std::size_t unit, std::size_t leaf, const at::Tensor& values) {
  const Unit& held = *units_[unit];
  held.exact().narrow(0, held.offset(leaf), values.numel()).copy_(values.reshape({-1}));
  held.refresh_weights();
}

void WholeStore::look_again() {
  all_.clear();
  for (const std::size_t i : trained_units()) {
    const Unit& unit = *units_[i];
    all_.push_back({i, 0, unit.elements(), unit.exact(), unit.weights(), unit.gradients()});
  }
  std::reverse(all_.begin(), all_.end());
}

}  // namespace lockstep::model
