// Adafactor: second moments of a matrix kept as one number a row and one a column.
#pragma once

#include "rank/optim/by_matrix.h"

namespace lockstep::optim {

// As transformers' Adafactor with scale_parameter = False, relative_step = False and clip_threshold = 1: no first moment, decay rate
// 1 - t^-0.8. Factored a parameter at a time, though q, k and v lie in one matrix here. Works in slices of rows, so that it needs
// little memory beside the weights; its sums are f32.
class Adafactor : public ByMatrix {
 public:
  Adafactor(const model::Store& store, const Settings& settings);

  std::vector<model::NamedSlice> named_state() const override;

 private:
  // Of a parameter, at its owner: of a matrix [rows] and [columns], of a vector [count]; f32.
  struct State {
    at::Tensor row, column, whole;
  };
  // Numbers of this step that live on the device.
  struct Now {
    at::Tensor factor, skip, fresh;  // fresh: 1 - beta2, the weight of this step's squares
  };
  void begin_step() override;
  void direct(std::size_t parameter, const at::Tensor& gradient, const Emit& emit) override;
  void direct_matrix(const State& state, const at::Tensor& gradient, const Emit& emit) const;
  Taken taken(const Parameter& p) const override { return {.rate = p.held.rate, .decay = p.held.decay}; }
  void update_other(std::size_t, double) override {}  // there are none

  std::vector<State> states_;  // by parameter
  Now now_;
};

}  // namespace lockstep::optim
