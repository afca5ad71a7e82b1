// A block's matrix in use: forward and backward through its weights, however they are held, and through an adapter beside them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "rank/model/projection/adapter.h"
#include "rank/model/projection/fp8.h"
#include "rank/model/weights/store.h"

namespace lockstep::model {

// Buffers that one projection at a time needs.
struct ProjectionScratch {
  at::Tensor dense;  // the weights of a quantized matrix, for the time of one product
  AdapterScratch adapter;
  std::optional<Fp8Products> fp8;  // where trainer.fp8 asks for it: the products with the weights themselves, not those of adapters
};

// What one micro-batch keeps of a projection from forward to backward, beside its input.
struct ProjectionKept {
  at::Tensor low;    // of an adapter; [rows, parts x rank]
  Fp8Scales scales;  // only with fp8
  DoraKept dora;     // only with DoRA
};

class Projection {
 public:
  // bias: leaf of the same unit, or none.
  Projection(StoredUnit unit, std::size_t leaf, std::optional<std::size_t> bias, std::optional<Adapter> adapter);

  // out = x weight^T (+ bias) (+ adapter).
  void forward(const at::Tensor& out, const at::Tensor& x, ProjectionKept& kept, const Dropout& dropout, ProjectionScratch& scratch) const;
  // The same where out is gate and up side by side, and SwiGLU of them: in one kernel where there is one.
  void forward_swiglu(const at::Tensor& gate_up, const at::Tensor& swiglu, const at::Tensor& x, ProjectionKept& kept,
                      const Dropout& dropout, ProjectionScratch& scratch) const;
  // Backward of one dout: begin_backward first, then the other two in any order, each where it is wanted.
  void begin_backward(const at::Tensor& dout, const ProjectionKept& kept, ProjectionScratch& scratch) const;
  // dx = dout weight (+ adapter).
  void backward_input(const at::Tensor& dx, const at::Tensor& dout, const ProjectionKept& kept, const Dropout& dropout,
                      ProjectionScratch& scratch) const;
  // The same where x is SwiGLU of gate_up, which becomes its own gradient. `swiglu` receives SwiGLU's output where that is wanted again;
  // otherwise what it holds is lost.
  void backward_swiglu(const at::Tensor& gate_up, const at::Tensor& swiglu, bool again, const at::Tensor& dout, const ProjectionKept& kept,
                       const Dropout& dropout, ProjectionScratch& scratch) const;
  // Adds the gradients of whatever is trained, and announces them.
  void backward_weight(const at::Tensor& dout, const at::Tensor& x, const ProjectionKept& kept, const Dropout& dropout,
                       ProjectionScratch& scratch) const;

  const std::optional<Adapter>& adapter() const { return adapter_; }
  // [out, in], made in scratch where the weights are quantized.
  const at::Tensor& weight(ProjectionScratch& scratch) const;

 private:
  // out = x weight^T (+ bias) (+ adapter), before a gain of DoRA; the frozen product in 8 bits where asked for and possible.
  void multiply(const at::Tensor& out, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, ProjectionKept& kept,
                const Dropout& dropout, ProjectionScratch& scratch) const;
  // The frozen product adds to what an adapter has left in its place.
  kernels::Into into() const { return adapter_ ? kernels::Into::add : kernels::Into::write; }
  // Whether SwiGLU beside it can be part of its matmul.
  bool fuses_swiglu(const at::Tensor& gate_up, std::int64_t inner, const ProjectionScratch& scratch) const;
  // What gradients are taken of: dout, or with DoRA dout times its gain, as begin_backward left it.
  const at::Tensor& gained(const at::Tensor& dout, const ProjectionScratch& scratch) const;

  StoredUnit unit_;
  std::size_t leaf_;
  std::optional<std::size_t> bias_;
  std::optional<Adapter> adapter_;
};

}  // namespace lockstep::model
