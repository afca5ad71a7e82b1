// AdamW, Lion and SGD: methods that treat every number of a unit by itself, in one pass over its flat buffers.
#pragma once

#include "rank/kernels/kernels.h"
#include "rank/optim/optim.h"

namespace lockstep::optim {

// States: AdamW exp_avg and exp_avg_sq, Lion exp_avg, SGD momentum_buffer; of the type of the unit's exact weights.
class Elementwise : public Optimizer {
 public:
  Elementwise(const model::Store& store, const Settings& settings);

  std::vector<model::NamedSlice> named_state() const override;

  const at::Tensor& first(std::size_t slice) const { return first_[slice]; }
  const at::Tensor& second(std::size_t slice) const { return second_[slice]; }

 private:
  void update(std::size_t slice, double learning_rate) override;

  kernels::Rule rule_;
  std::vector<at::Tensor> first_, second_;  // [count] of each slice; second_ undefined where the method has one state
};

}  // namespace lockstep::optim
