// Two branches, each a part and a norm; the policy says where what they make is kept.
#include "rank/model/post_norm_block.h"

#include <ATen/ops/add.h>

#include "rank/model/buffers.h"

namespace lockstep::model {

// Everything a forward makes that a backward reads.
struct PostNormBlock::Kept final : LayerKept {
  at::Tensor x;  // [rows, hidden] the stream at the block's start
  AttentionKept attention;
  at::Tensor attended, rstd1;  // [rows, hidden], [rows] what attention made, and its norm's scale
  at::Tensor middle;           // [rows, hidden] the stream between the branches
  FeedForwardKept feed_forward;
  at::Tensor expanded, rstd2;  // [rows, hidden], [rows] what the feed-forward made, and its norm's scale

  at::Tensor& input(std::size_t) override { return x; }
  void add_to(HeldMemory& memory) const override {
    for (const at::Tensor* one : {&x, &attended, &rstd1, &middle, &expanded, &rstd2}) memory.add(*one);
    model::add_to(memory, attention);
    model::add_to(memory, feed_forward);
  }
};

// Where each activation lives under the policy: the flight's own or the shared one.
struct PostNormBlock::Places {
  at::Tensor& x;  // by every policy
  Kept& matmuls;  // what matmuls and attention made, and what norms read of it; not where blocks are recomputed
  AttentionPart::Places attention;
  FeedForward::Places feed_forward;
};

std::unique_ptr<LayerKept> PostNormBlock::make_kept() const { return std::make_unique<Kept>(); }

PostNormBlock::Places PostNormBlock::places(LayerKept* kept, Workspace& work) const {
  const auto at = homes<Kept>(kept, work);
  return {.x = at.own.x, .matmuls = at.matmuls, .attention = at.attention(), .feed_forward = at.feed_forward()};
}

void PostNormBlock::start(const ResidualStream& stream, const Places& at) const {
  if (!stream.delta.defined()) {
    at.x = stream.residual;
    return;
  }
  fit(at.x, stream.residual.sizes(), stream.residual.options());
  at::add_out(at.x, stream.residual, stream.delta);
}

const at::Tensor& PostNormBlock::norm(const at::Tensor& made, std::size_t leaf, at::Tensor& rstd, Workspace& work) const {
  const at::Tensor& delta = fit(work.hidden, made.sizes(), made.options());
  fit(rstd, {made.size(0)}, made.options().dtype(at::kFloat));
  kernels::rms_norm_forward(made, {}, unit_.weight(leaf), dims_.norm_eps, {}, delta, rstd);
  return delta;
}

// What attention made -> the stream between the branches.
void PostNormBlock::middle(const Places& at, Workspace& work) const {
  Kept& m = at.matmuls;
  fit(m.middle, at.x.sizes(), at.x.options());
  at::add_out(m.middle, at.x, norm(m.attended, BlockLeaves::input_norm, m.rstd1, work));
}

void PostNormBlock::forward(Border& border, Flight& flight, LayerKept* kept) const {
  ResidualStream& stream = border.streams.front();
  const auto at = places(kept, *flight.work);
  start(stream, at);
  attention_.forward(fit(at.matmuls.attended, at.x.sizes(), at.x.options()), at.x, flight, at.attention);
  stream = finish(flight, at);
}

void PostNormBlock::decode(Border& border, Flight& flight, DecodeState& state, const DecodeStep& step) const {
  ResidualStream& stream = border.streams.front();
  const auto at = places(nullptr, *flight.work);
  start(stream, at);
  attention_.decode(fit(at.matmuls.attended, at.x.sizes(), at.x.options()), at.x, flight, at.attention, state, step);
  stream = finish(flight, at);
}

ResidualStream PostNormBlock::finish(Flight& flight, const Places& at) const {
  Kept& m = at.matmuls;
  middle(at, *flight.work);
  feed_forward_.forward(fit(m.expanded, at.x.sizes(), at.x.options()), m.middle, flight, at.feed_forward);
  return {m.middle, norm(m.expanded, BlockLeaves::post_norm, m.rstd2, *flight.work)};
}

const at::Tensor& PostNormBlock::backward_norm(const at::Tensor& dstream, const at::Tensor& made, std::size_t leaf, const at::Tensor& rstd,
                                               Workspace& work) const {
  const at::Tensor& dmade = fit(work.norm, made.sizes(), made.options());
  kernels::rms_norm_backward(dstream, made, unit_.weight(leaf), rstd, dmade, kernels::Into::write, unit_.gradient(leaf));
  unit_.complete(leaf);
  return dmade;
}

void PostNormBlock::backward(BorderGradient& gradient, Flight& flight, LayerKept& kept, bool further) const {
  const at::Tensor& dstream = gradient.streams.front();
  Workspace& work = *flight.work;
  const auto at = places(&kept, work);
  Kept& m = at.matmuls;
  if (recompute_ == Recompute::blocks) {  // forward again, the last matmul too: its norm has a backward
    attention_.forward(fit(m.attended, at.x.sizes(), at.x.options()), at.x, flight, at.attention);
    finish(flight, at);
  }
  const at::Tensor& dexpanded = backward_norm(dstream, m.expanded, BlockLeaves::post_norm, m.rstd2, work);
  feed_forward_.backward_out(dexpanded, flight, at.feed_forward, lacks_cheap());
  const at::Tensor& dinput = fit(work.hidden, dstream.sizes(), dstream.options());
  feed_forward_.backward_in(dinput, m.middle, flight, at.feed_forward);
  dstream.add_(dinput);

  const at::Tensor& dattended = backward_norm(dstream, m.attended, BlockLeaves::input_norm, m.rstd1, work);
  attention_.backward(dinput, dattended, at.x, flight, at.attention, attention_again(), at.feed_forward.gate_up.gate_up, further);
  if (further) dstream.add_(dinput);
}

}  // namespace lockstep::model
