// The feed-forward's arithmetic, in the order it happens.
#include "rank/model/parts/feed_forward.h"

namespace lockstep::model {

void add_to(HeldMemory& memory, const FeedForwardKept& kept) {
  for (const at::Tensor* one : {&kept.gate_up, &kept.swiglu, &kept.in.low, &kept.out.low}) memory.add(*one);
}

FeedForward::FeedForward(const Dims& dims, StoredUnit unit, std::optional<Adapter> in, std::optional<Adapter> out)
    : dims_(dims),
      in_(unit, BlockLeaves::gate_up, std::nullopt, std::move(in)),
      out_(unit, BlockLeaves::down, std::nullopt, std::move(out)) {}

void FeedForward::forward(const at::Tensor& out, const at::Tensor& x, Flight& flight, const Places& at) const {
  expand(x, flight, at);
  out_.forward(out, at.swiglu.swiglu, at.out.out, flight.dropout, flight.work->projection);
}

void FeedForward::expand(const at::Tensor& x, Flight& flight, const Places& at) const {
  const auto rows = x.size(0);
  fit(at.gate_up.gate_up, {rows, 2 * dims_.intermediate}, x.options());
  fit(at.swiglu.swiglu, {rows, dims_.intermediate}, x.options());
  in_.forward_swiglu(at.gate_up.gate_up, at.swiglu.swiglu, x, at.gate_up.in, flight.dropout, flight.work->projection);
}

void FeedForward::backward_out(const at::Tensor& dout, Flight& flight, const Places& at, bool again) const {
  ProjectionScratch& scratch = flight.work->projection;
  // Where SwiGLU's output was kept, its place is needed once the weights have seen it.
  const auto backward_weight = [&] { out_.backward_weight(dout, at.swiglu.swiglu, at.out.out, flight.dropout, scratch); };
  out_.begin_backward(dout, at.out.out, scratch);
  if (!again) backward_weight();
  out_.backward_swiglu(at.gate_up.gate_up, at.swiglu.swiglu, again, dout, at.out.out, flight.dropout, scratch);
  if (again) backward_weight();
}

void FeedForward::backward_in(const at::Tensor& dx, const at::Tensor& x, Flight& flight, const Places& at) const {
  ProjectionScratch& scratch = flight.work->projection;
  const at::Tensor& dgate_up = at.gate_up.gate_up;
  in_.begin_backward(dgate_up, at.gate_up.in, scratch);
  in_.backward_input(dx, dgate_up, at.gate_up.in, flight.dropout, scratch);
  in_.backward_weight(dgate_up, x, at.gate_up.in, flight.dropout, scratch);
}

}  // namespace lockstep::model
