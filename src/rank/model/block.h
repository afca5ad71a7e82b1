// The layer of Llama and its kin: norm, attention, norm, SwiGLU, each added to the stream; forward and backward written out.
#pragma once

#include <ATen/core/Tensor.h>

#include "rank/model/branches.h"

namespace lockstep::model {

class Block final : public Layer {
 public:
  // adapters: the unit that holds them, or none.
  Block(const config::ModelConfig& model, const Dims& dims, StoredUnit unit, std::optional<StoredUnit> adapters,
        const config::LoraConfig& lora, std::int64_t layer);

  void set_recompute(Recompute policy) override { recompute_ = policy; }
  std::unique_ptr<LayerKept> make_kept() const override;
  void open(const Pass& pass) const override { branches_.open(pass); }
  void close(const Pass& pass) const override { branches_.close(pass); }
  ResidualStream forward(const ResidualStream& stream, Flight& flight, LayerKept* kept) const override;
  void backward(const at::Tensor& dstream, Flight& flight, LayerKept& kept, bool further) const override;
  std::unique_ptr<DecodeState> make_decode_state(std::int64_t batch) const override { return branches_.attention.make_decode_state(batch); }
  ResidualStream decode(const ResidualStream& stream, Flight& flight, DecodeState& state, const DecodeStep& step) const override;
  void reset_magnitudes(ProjectionScratch& scratch) const override { branches_.reset_magnitudes(scratch); }

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

  const Dims& dims_;
  const Branches branches_;
  Recompute recompute_ = Recompute::none;
};

}  // namespace lockstep::model
