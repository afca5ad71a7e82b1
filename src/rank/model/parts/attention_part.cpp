// Attention's arithmetic, in the order it happens.
#include "rank/model/parts/attention_part.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "rank/model/parts/key_values.h"

namespace lockstep::model {

void add_to(HeldMemory& memory, const AttentionKept& kept) {
  for (const at::Tensor* one : {&kept.qkv, &kept.qk, &kept.saved.out, &kept.saved.log_sum, &kept.mixed, &kept.in.low, &kept.out.low})
    memory.add(*one);
  for (const at::Tensor& log_sum : kept.saved.log_sums) memory.add(log_sum);
}

AttentionPart::AttentionPart(const Dims& dims, const BlockLeaves& leaves, StoredUnit unit, std::optional<Adapter> in,
                             std::optional<Adapter> out)
    : dims_(dims),
      leaves_(leaves),
      unit_(unit),
      in_(unit, BlockLeaves::qkv, dims.qkv_bias ? std::optional(leaves.bias) : std::nullopt, std::move(in)),
      out_(unit, BlockLeaves::out, std::nullopt, std::move(out)) {}

kernels::HeadLayout AttentionPart::head_layout(const Flight& flight) const {
  return {.time = flight.time, .heads = dims_.heads, .kv_heads = dims_.kv_heads, .head_dim = dims_.head_dim, .positions = flight.positions};
}

kernels::HeadNorms AttentionPart::head_norms() const {
  if (!dims_.qk_norm || dims_.norms_behind) return {};
  return {.q = unit_.weight(leaves_.q_norm),
          .k = unit_.weight(leaves_.k_norm),
          .dq = unit_.gradient(leaves_.q_norm),
          .dk = unit_.gradient(leaves_.k_norm),
          .eps = dims_.norm_eps};
}

void AttentionPart::forward(const at::Tensor& out, const at::Tensor& x, Flight& flight, const Places& at) const {
  mix(x, flight, at);
  out_.forward(out, at.mixed.mixed, at.mixed.out, flight.dropout, flight.work->projection);
}

void AttentionPart::mix(const at::Tensor& x, Flight& flight, const Places& at) const {
  at.mixed.mixed = attention_forward(project(x, flight, at), flight.segments, at.mixed.saved);
}

void AttentionPart::decode(const at::Tensor& out, const at::Tensor& x, Flight& flight, const Places& at, DecodeState& state,
                           const DecodeStep& step) const {
  at.mixed.mixed = static_cast<KeyValues&>(state).attend(project(x, flight, at), step);
  out_.forward(out, at.mixed.mixed, at.mixed.out, flight.dropout, flight.work->projection);
}

std::unique_ptr<DecodeState> AttentionPart::make_decode_state(std::int64_t batch) const {
  return std::make_unique<KeyValues>(dims_, batch, unit_.options());
}

// x -> the heads, rotated.
HeadViews AttentionPart::project(const at::Tensor& x, Flight& flight, const Places& at) const {
  fit(at.qkv.qkv, {x.size(0), dims_.qkv_width()}, x.options());
  in_.forward(at.qkv.qkv, x, at.qkv.in, flight.dropout, flight.work->projection);
  rotate(flight, at);
  return heads(flight, at);
}

HeadViews AttentionPart::heads(const Flight& flight, const Places& at) const {
  return head_views(dims_.qk_norm ? at.qk.qk : at.qkv.qkv, at.qkv.qkv, dims_, flight.time);
}

// Head norms keep the raw q and k, which their backward needs; without them the rotation is in place.
void AttentionPart::rotate(Flight& flight, const Places& at) const {
  const at::Tensor& qkv = at.qkv.qkv;
  if (dims_.qk_norm) fit(at.qk.qk, {qkv.size(0), dims_.q_width() + dims_.kv_width()}, qkv.options());
  const bool wide = dims_.qk_norm && dims_.norms_behind;
  if (wide) norm_all_heads(qkv, at.qk.qk);
  kernels::rope_forward(wide ? at.qk.qk : qkv, dims_.qk_norm ? at.qk.qk : qkv, head_layout(flight), flight.rotary, head_norms());
}

std::array<AttentionPart::WideNorm, 2> AttentionPart::wide_norms() const {
  return {{{leaves_.q_norm, 0, dims_.q_width()}, {leaves_.k_norm, dims_.q_width(), dims_.kv_width()}}};
}

void AttentionPart::norm_all_heads(const at::Tensor& qkv, const at::Tensor& qk) const {
  for (const auto& [leaf, column, width] : wide_norms()) {
    const at::Tensor x = qkv.narrow(1, column, width).contiguous(), out = at::empty_like(x);
    const at::Tensor rstd = at::empty({x.size(0)}, x.options().dtype(at::kFloat));
    kernels::rms_norm_forward(x, {}, unit_.weight(leaf), dims_.norm_eps, {}, out, rstd);
    qk.narrow(1, column, width).copy_(out);
  }
}

// dqkv: of the normed q and k; becomes that of the raw ones.
void AttentionPart::backward_all_heads(const at::Tensor& dqkv, const at::Tensor& qkv) const {
  for (const auto& [leaf, column, width] : wide_norms()) {
    const at::Tensor x = qkv.narrow(1, column, width).contiguous(), dout = dqkv.narrow(1, column, width).contiguous();
    const at::Tensor dx = at::empty_like(x), rstd = at::empty({x.size(0)}, x.options().dtype(at::kFloat));
    kernels::rms_norm_forward(x, {}, unit_.weight(leaf), dims_.norm_eps, {}, dx, rstd);  // for the scale of each row
    kernels::rms_norm_backward(dout, x, unit_.weight(leaf), rstd, dx, kernels::Into::write, unit_.gradient(leaf));
    dqkv.narrow(1, column, width).copy_(dx);
  }
}

// Of `mixed` and of qkv.
std::pair<at::Tensor, at::Tensor> AttentionPart::inner_gradients(const at::Tensor& spare, Workspace& work) const {
  const auto rows = spare.size(0), q = dims_.q_width(), qkv = dims_.qkv_width();
  if (q + qkv > spare.size(1)) return {fit(work.dmixed, {rows, q}, spare.options()), fit(work.dqkv, {rows, qkv}, spare.options())};
  const at::Tensor flat = spare.view({-1});
  return {flat.narrow(0, 0, rows * q).view({rows, q}), flat.narrow(0, rows * q, rows * qkv).view({rows, qkv})};
}

void AttentionPart::backward(const at::Tensor& dx, const at::Tensor& dout, const at::Tensor& x, Flight& flight, const Places& at,
                             Again again, const at::Tensor& spare, bool further) const {
  Workspace& work = *flight.work;
  const auto [dmixed, dqkv] = inner_gradients(spare, work);
  out_.begin_backward(dout, at.mixed.out, work.projection);
  out_.backward_input(dmixed, dout, at.mixed.out, flight.dropout, work.projection);
  out_.backward_weight(dout, at.mixed.mixed, at.mixed.out, flight.dropout, work.projection);

  if (again == Again::projection) project(x, flight, at);
  if (again == Again::rotation && dims_.qk_norm) rotate(flight, at);
  const auto gradients = attention_backward(dmixed, heads(flight, at), flight.segments, at.mixed.saved);
  kernels::rope_backward(gradients.dq, gradients.dk, gradients.dv, dqkv, head_layout(flight), flight.rotary, head_norms(), at.qkv.qkv);
  if (dims_.qk_norm) {
    if (dims_.norms_behind) backward_all_heads(dqkv, at.qkv.qkv);
    unit_.complete(leaves_.q_norm);
    unit_.complete(leaves_.k_norm);
  }
  in_.begin_backward(dqkv, at.qkv.in, work.projection);
  if (further) in_.backward_input(dx, dqkv, at.qkv.in, flight.dropout, work.projection);
  in_.backward_weight(dqkv, x, at.qkv.in, flight.dropout, work.projection);
}

}  // namespace lockstep::model
