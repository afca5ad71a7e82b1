// Methods that look at whole matrices (Muon, Adafactor), over units that may be cut between ranks.
#pragma once

#include <functional>

#include "rank/optim/optim.h"

namespace lockstep::optim {

// A matrix of a unit that is cut between ranks has an owner, who holds its states, is brought its gradient, and gives back to everyone
// their share of what is to be taken off. Where a unit is whole every rank owns all of it, and nothing is sent.
class ByMatrix : public Optimizer {
 protected:
  struct Parameter {
    std::size_t slice;
    HeldPiece held;      // as much as is held here
    bool whole = false;  // the method looks at all of it
    bool owned = false;  // and this rank does
  };
  ByMatrix(const model::Store& store, const Settings& settings) : Optimizer(store, settings) {}
  // To be called once, by a method's own constructor.
  void find_parameters(config::Optimizer method);
  const std::vector<Parameter>& parameters() const { return parameters_; }

  // Numbers from `begin` of a parameter on that are to be taken off the weights: flat, of any float type.
  using Emit = std::function<void(std::int64_t begin, const at::Tensor& numbers)>;
  // gradient: [all of the parameter]. Of a parameter that is looked at as a whole, and owned.
  virtual void direct(std::size_t parameter, const at::Tensor& gradient, const Emit& emit) = 0;
  // How what direct() gives is taken off.
  struct Taken {
    double rate;  // times the learning rate
    double decay;
  };
  virtual Taken taken(const Parameter& parameter) const = 0;
  // The others, number by number.
  virtual void update_other(std::size_t parameter, double learning_rate) = 0;
  // A state that its owner has all of, and the others nothing.
  static model::NamedSlice named_whole(std::string_view state, const Parameter& p, const at::Tensor& numbers,
                                       const std::vector<std::int64_t>& shape);

 private:
  void update(std::size_t slice, double learning_rate) final;
  void update_here(std::size_t parameter, double learning_rate);
  void update_together(std::size_t first, std::size_t last, double learning_rate);
  void take_off(const Parameter& parameter, std::int64_t begin, const at::Tensor& numbers, double learning_rate) const;

  std::vector<Parameter> parameters_;
  std::vector<std::size_t> begins_;  // by slice, where its parameters do; one more for the end
};

}  // namespace lockstep::optim
