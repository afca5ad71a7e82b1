// The layer of Llama and its kin: norm, attention, norm, SwiGLU, each added to the stream; forward and backward written out.
#pragma once

#include <ATen/core/Tensor.h>

#include "rank/model/branches.h"

namespace lockstep::model {

class Block final : public Branches {
 public:
  using Branches::Branches;

  std::unique_ptr<LayerKept> make_kept() const override;
  void forward(Border& border, Flight& flight, LayerKept* kept) const override;
  void backward(BorderGradient& gradient, Flight& flight, LayerKept& kept, bool further) const override;
  void decode(Border& border, Flight& flight, DecodeState& state, const DecodeStep& step) const override;

 private:
  struct Kept;
  struct Places;
  Places places(LayerKept* kept, Workspace& work) const;
  void start(const ResidualStream& stream, const Places& at) const;
  const at::Tensor& branch_output(const Places& at, Workspace& work) const;
  void middle(const at::Tensor& delta, const Places& at) const;
  ResidualStream finish(const at::Tensor& delta, Flight& flight, const Places& at) const;
  void norm_again(const at::Tensor& out, const at::Tensor& x, std::size_t leaf, const at::Tensor& rstd) const;
  void backward_norm(const at::Tensor& dnorm, const at::Tensor& x, std::size_t leaf, const at::Tensor& rstd,
                     const at::Tensor& dstream) const;
};

}  // namespace lockstep::model
