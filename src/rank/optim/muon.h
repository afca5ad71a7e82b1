// Muon: matrices inside the model move along the orthogonalised momentum; everything else by AdamW.
#pragma once

#include "rank/optim/by_matrix.h"

namespace lockstep::optim {

// The nearest thing to an orthogonal matrix with the same directions, by five quintic Newton-Schulz steps in the matrix's own type:
// singular values end between 0.7 and 1.2. matrix: [rows, columns].
at::Tensor orthogonalized(const at::Tensor& matrix);

// Update of a matrix [rows, columns]: learning rate x sqrt(max(1, rows / columns)) x orthogonalised Nesterov momentum, decoupled
// decay: as Keller Jordan's reference and torch.optim.Muon. In bf16 on CUDA, in f32 on a CPU. Embedding, head, norms and biases are
// AdamW's. States: momentum_buffer of the matrices, exp_avg and exp_avg_sq of the rest; of the type of the unit's exact weights.
class Muon : public ByMatrix {
 public:
  Muon(const model::Store& store, const Settings& settings);

  std::vector<model::NamedSlice> named_state() const override;

 private:
  // Of a parameter, as much as this rank has of them: a matrix's momentum, or AdamW's two.
  struct State {
    at::Tensor first, second;
  };
  void direct(std::size_t parameter, const at::Tensor& gradient, const Emit& emit) override;
  Taken taken(const Parameter& p) const override;
  void update_other(std::size_t parameter, double learning_rate) override;

  std::vector<State> states_;  // by parameter
};

}  // namespace lockstep::optim
