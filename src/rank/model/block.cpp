// Two branches, each a norm and a part; the policy says where what they make is kept.
#include "rank/model/block.h"

#include "rank/model/buffers.h"

namespace lockstep::model {

// Everything a forward makes that a backward reads.
struct Block::Kept final : LayerKept {
  at::Tensor x;             // [rows, hidden] the stream at the block's start
  at::Tensor norm1, rstd1;  // [rows, hidden], [rows]
  AttentionKept attention;
  at::Tensor middle;        // [rows, hidden] the stream between the branches
  at::Tensor norm2, rstd2;  // [rows, hidden], [rows]
  FeedForwardKept feed_forward;

  at::Tensor& input(std::size_t) override { return x; }
  void add_to(HeldMemory& memory) const override {
    for (const at::Tensor* one : {&x, &norm1, &rstd1, &middle, &norm2, &rstd2}) memory.add(*one);
    model::add_to(memory, attention);
    model::add_to(memory, feed_forward);
  }
};

// Where each activation lives under the policy: the flight's own or the shared one.
struct Block::Places {
  at::Tensor &x, &rstd1;       // by every policy
  at::Tensor &middle, &rstd2;  // not where blocks are recomputed
  at::Tensor &norm1, &norm2;   // the same one where they are not kept
  AttentionPart::Places attention;
  FeedForward::Places feed_forward;
};

std::unique_ptr<LayerKept> Block::make_kept() const { return std::make_unique<Kept>(); }

Block::Places Block::places(LayerKept* kept, Workspace& work) const {
  const auto at = homes<Kept>(kept, work);
  const bool own_norms = kept != nullptr && recompute_ == Recompute::none;
  return {.x = at.own.x,
          .rstd1 = at.own.rstd1,
          .middle = at.matmuls.middle,
          .rstd2 = at.matmuls.rstd2,
          .norm1 = own_norms ? at.own.norm1 : work.norm,
          .norm2 = own_norms ? at.own.norm2 : work.norm,
          .attention = at.attention(),
          .feed_forward = at.feed_forward()};
}

void Block::forward(Border& border, Flight& flight, LayerKept* kept) const {
  ResidualStream& stream = border.streams.front();
  const auto at = places(kept, *flight.work);
  start(stream, at);
  const at::Tensor& delta = branch_output(at, *flight.work);
  attention_.forward(delta, at.norm1, flight, at.attention);
  stream = finish(delta, flight, at);
}

void Block::decode(Border& border, Flight& flight, DecodeState& state, const DecodeStep& step) const {
  ResidualStream& stream = border.streams.front();
  const auto at = places(nullptr, *flight.work);
  start(stream, at);
  const at::Tensor& delta = branch_output(at, *flight.work);
  attention_.decode(delta, at.norm1, flight, at.attention, state, step);
  stream = finish(delta, flight, at);
}

// The stream at the block's start, and its norm.
void Block::start(const ResidualStream& stream, const Places& at) const {
  const auto& options = stream.residual.options();
  const auto rows = stream.residual.size(0);
  if (stream.delta.defined()) {
    fit(at.x, {rows, dims_.hidden}, options);
  } else {
    at.x = stream.residual;
  }
  fit(at.norm1, {rows, dims_.hidden}, options);
  fit(at.rstd1, {rows}, options.dtype(at::kFloat));
  kernels::rms_norm_forward(stream.residual, stream.delta, unit_.weight(BlockLeaves::input_norm), dims_.norm_eps, at.x, at.norm1, at.rstd1);
}

const at::Tensor& Block::branch_output(const Places& at, Workspace& work) const {
  return fit(work.hidden, {at.x.size(0), dims_.hidden}, at.x.options());
}

// The stream between the branches, and its norm.
void Block::middle(const at::Tensor& delta, const Places& at) const {
  const auto& options = at.x.options();
  const auto rows = at.x.size(0);
  fit(at.middle, {rows, dims_.hidden}, options);
  fit(at.norm2, {rows, dims_.hidden}, options);
  fit(at.rstd2, {rows}, options.dtype(at::kFloat));
  kernels::rms_norm_forward(at.x, delta, unit_.weight(BlockLeaves::post_norm), dims_.norm_eps, at.middle, at.norm2, at.rstd2);
}

// What attention adds -> the stream behind the block.
ResidualStream Block::finish(const at::Tensor& delta, Flight& flight, const Places& at) const {
  middle(delta, at);
  feed_forward_.forward(delta, at.norm2, flight, at.feed_forward);
  return {at.middle, delta};
}

void Block::norm_again(const at::Tensor& out, const at::Tensor& x, std::size_t leaf, const at::Tensor& rstd) const {
  kernels::rms_norm_apply(x, unit_.weight(leaf), rstd, out);
}

void Block::backward_norm(const at::Tensor& dnorm, const at::Tensor& x, std::size_t leaf, const at::Tensor& rstd,
                          const at::Tensor& dstream) const {
  kernels::rms_norm_backward(dnorm, x, unit_.weight(leaf), rstd, dstream, kernels::Into::add, unit_.gradient(leaf));
  unit_.complete(leaf);
}

void Block::backward(BorderGradient& gradient, Flight& flight, LayerKept& kept, bool further) const {
  const at::Tensor& dstream = gradient.streams.front();
  Workspace& work = *flight.work;
  const auto at = places(&kept, work);
  if (recompute_ == Recompute::blocks) {  // forward again, up to the last matmul, which no gradient needs
    norm_again(at.norm1, at.x, BlockLeaves::input_norm, at.rstd1);
    const at::Tensor& delta = branch_output(at, work);
    attention_.forward(delta, at.norm1, flight, at.attention);
    middle(delta, at);
    feed_forward_.expand(at.norm2, flight, at.feed_forward);
  }
  feed_forward_.backward_out(dstream, flight, at.feed_forward, lacks_cheap());
  if (lacks_cheap()) norm_again(at.norm2, at.middle, BlockLeaves::post_norm, at.rstd2);
  const at::Tensor& dnorm = branch_output(at, work);
  feed_forward_.backward_in(dnorm, at.norm2, flight, at.feed_forward);
  backward_norm(dnorm, at.middle, BlockLeaves::post_norm, at.rstd2, dstream);

  if (recompute_ != Recompute::none) norm_again(at.norm1, at.x, BlockLeaves::input_norm, at.rstd1);
  // Where nothing below is trained, adapters alone need their part. gate_up's memory is done with by now.
  const bool stream_goes_on = further || unit_.trained();
  attention_.backward(dnorm, dstream, at.norm1, flight, at.attention, attention_again(), at.feed_forward.gate_up.gate_up, stream_goes_on);
  if (stream_goes_on) backward_norm(dnorm, at.x, BlockLeaves::input_norm, at.rstd1, dstream);
}

}  // namespace lockstep::model
