// SwiGLU between its two matrices, as a part of a layer.
#pragma once

#include "rank/model/workspace.h"

namespace lockstep::model {

// What a micro-batch keeps of it.
struct FeedForwardKept {
  at::Tensor gate_up;  // [rows, 2 intermediate]; backward turns it into its gradient
  at::Tensor swiglu;   // [rows, intermediate]
  ProjectionKept in, out;
};
void add_to(HeldMemory& memory, const FeedForwardKept& kept);

class FeedForward {
 public:
  // The homes of what is kept, by the layer's policy: its own or the shared one.
  struct Places {
    FeedForwardKept& gate_up;  // gate_up and in
    FeedForwardKept& swiglu;   // swiglu
    FeedForwardKept& out;      // out
  };

  FeedForward(const Dims& dims, StoredUnit unit, std::optional<Adapter> in, std::optional<Adapter> out);

  // x: [rows, hidden]. out: [rows, hidden] what the part adds to the stream.
  void forward(const at::Tensor& out, const at::Tensor& x, Flight& flight, const Places& at) const;
  // Up to SwiGLU's output, without the last matrix.
  void expand(const at::Tensor& x, Flight& flight, const Places& at) const;
  // In two halves, because the second may need an x that is recomputed in memory which the first still uses.
  // again: SwiGLU's output was not kept, and is recomputed on the way.
  void backward_out(const at::Tensor& dout, Flight& flight, const Places& at, bool again) const;
  // dx: [rows, hidden].
  void backward_in(const at::Tensor& dx, const at::Tensor& x, Flight& flight, const Places& at) const;

  std::array<const Projection*, 2> projections() const { return {&in_, &out_}; }

 private:
  const Dims& dims_;
  const Projection in_, out_;
};

}  // namespace lockstep::model
