// The layer of OLMo 2: attention and SwiGLU read the stream itself, and what each adds to it is normed first.
#pragma once

#include "rank/model/branches.h"

namespace lockstep::model {

class PostNormBlock final : public Branches {
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
  // The stream at the block's start.
  void start(const ResidualStream& stream, const Places& at) const;
  // What a branch made -> what it adds to the stream.
  const at::Tensor& norm(const at::Tensor& made, std::size_t leaf, at::Tensor& rstd, Workspace& work) const;
  void middle(const Places& at, Workspace& work) const;
  ResidualStream finish(Flight& flight, const Places& at) const;
  // dstream -> the gradient of what the branch made, in work.norm.
  const at::Tensor& backward_norm(const at::Tensor& dstream, const at::Tensor& made, std::size_t leaf, const at::Tensor& rstd,
                                  Workspace& work) const;
};

}  // namespace lockstep::model
