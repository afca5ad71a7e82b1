// Adafactor: second moments of a matrix kept as one number a row and one a column.
#pragma once

#include "rank/optim/optim.h"

namespace lockstep::optim {

// As transformers' Adafactor with scale_parameter = False, relative_step = False and clip_threshold = 1: no first moment, decay rate
// 1 - t^-0.8. Factored a parameter at a time, though q, k and v lie in one matrix here. Works in slices of rows, so that it needs
// little memory beside the weights; its sums are f32.
class Adafactor : public Optimizer {
 public:
  Adafactor(const model::Store& store, const Settings& settings);

  void step(double learning_rate) override;
  std::vector<model::NamedSlice> named_state() const override;

 private:
  struct Parameter {
    std::size_t slice;
    Place place;
    at::Tensor row, column;  // [rows], [columns] f32: of a matrix
    at::Tensor whole;        // [count] f32: of a vector
  };
  // Numbers of this step that live on the device.
  struct Now {
    at::Tensor factor, skip, fresh;  // fresh: 1 - beta2, the weight of this step's squares
  };
  void update_matrix(const Parameter& p, const Now& now, double learning_rate) const;
  void update_vector(const Parameter& p, const Now& now, double learning_rate) const;
  // Takes `update` (f32, flat) off the numbers from `begin` of the parameter on.
  void apply(const Parameter& p, const at::Tensor& update, std::int64_t begin, double learning_rate) const;

  std::vector<Parameter> parameters_;
};

}  // namespace lockstep::optim
