// The block's arithmetic, in the order it happens.
#include "rank/model/block.h"

#include "rank/model/buffers.h"

namespace lockstep::model {

struct Block::Places {
  BlockActivations& cheap;    // SwiGLU, and heads that are normed
  BlockActivations& qkv;      // q, k and v
  BlockActivations& matmuls;  // what the other matmuls and attention made
  BlockActivations& input;    // the block's input and the row scales
  at::Tensor &norm1, &norm2;  // the same one where they are not kept
};

namespace {

std::optional<Adapter> adapter_of(const config::ModelConfig& model, Unit* adapters, const config::LoraConfig& lora, std::int64_t layer,
                                  std::size_t matrix) {
  if (adapters == nullptr) return std::nullopt;
  for (AdaptedMatrix& adapted : adapted_matrices(model, lora, layer)) {
    if (adapted.matrix == matrix) return Adapter(*adapters, std::move(adapted), lora, std::uint64_t(layer) * kBlockMatrices + matrix);
  }
  return std::nullopt;
}

}  // namespace

void add_to(HeldMemory& memory, const BlockActivations& a) {
  for (const at::Tensor* one : {&a.x, &a.norm1, &a.rstd1, &a.qkv, &a.qk, &a.attention.out, &a.attention.log_sum, &a.mixed, &a.middle,
                                &a.norm2, &a.rstd2, &a.gate_up, &a.swiglu})
    memory.add(*one);
  for (const at::Tensor& log_sum : a.attention.log_sums) memory.add(log_sum);
  for (const at::Tensor& low : a.low) memory.add(low);
}

Block::Block(const config::ModelConfig& model, const Dims& dims, Unit& unit, Unit* adapters, const config::LoraConfig& lora,
             std::int64_t layer, Recompute recompute)
    : dims_(dims),
      leaves_(dims),
      unit_(unit),
      qkv_(unit, BlockLeaves::qkv, dims.qkv_bias ? std::optional(leaves_.bias) : std::nullopt, adapter_of(model, adapters, lora, layer, 0)),
      out_(unit, BlockLeaves::out, std::nullopt, adapter_of(model, adapters, lora, layer, 1)),
      gate_up_(unit, BlockLeaves::gate_up, std::nullopt, adapter_of(model, adapters, lora, layer, 2)),
      down_(unit, BlockLeaves::down, std::nullopt, adapter_of(model, adapters, lora, layer, 3)),
      recompute_(recompute) {}

Block::Places Block::places(BlockActivations* saved, BlockScratch& scratch) const {
  auto& shared = scratch.activations;
  if (saved == nullptr) return {shared, shared, shared, shared, scratch.norm, scratch.norm};
  if (recompute_ == Recompute::none) return {*saved, *saved, *saved, *saved, saved->norm1, saved->norm2};
  return {shared,
          recompute_ == Recompute::norms ? *saved : shared,
          recompute_ == Recompute::blocks ? shared : *saved,
          *saved,
          scratch.norm,
          scratch.norm};
}

kernels::HeadLayout Block::head_layout(const BlockContext& context) const {
  return {
      .time = context.time, .heads = dims_.heads, .kv_heads = dims_.kv_heads, .head_dim = dims_.head_dim, .positions = context.positions};
}

kernels::HeadNorms Block::head_norms() const {
  if (!dims_.qk_norm) return {};
  return {.q = unit_.weight(leaves_.q_norm),
          .k = unit_.weight(leaves_.k_norm),
          .dq = unit_.gradient(leaves_.q_norm),
          .dk = unit_.gradient(leaves_.k_norm),
          .eps = dims_.norm_eps};
}

ResidualStream Block::forward(const ResidualStream& stream, const BlockContext& context, BlockActivations* saved) const {
  const auto at = places(saved, *context.scratch);
  start(stream, at);
  attend(context, at);
  return finish(context, at);
}

ResidualStream Block::decode(const ResidualStream& stream, const BlockContext& context, std::size_t layer, KvCache& cache,
                             const KvCache::Step& step) const {
  const auto at = places(nullptr, *context.scratch);
  start(stream, at);
  at.matmuls.mixed = cache.attend(layer, project(context, at), step);
  return finish(context, at);
}

// mixed -> the stream behind the block.
ResidualStream Block::finish(const BlockContext& context, const Places& at) const {
  expand(context, at);
  auto& delta = context.scratch->hidden;
  down_.forward(delta, at.cheap.swiglu, at.input.low[3], context.dropout, context.scratch->projection);
  return {at.matmuls.middle, delta};
}

void Block::start(const ResidualStream& stream, const Places& at) const {
  const auto& options = stream.residual.options();
  const auto rows = stream.residual.size(0);
  auto& x = at.input.x;
  if (stream.delta.defined()) {
    fit(x, {rows, dims_.hidden}, options);
  } else {
    x = stream.residual;
  }
  fit(at.norm1, {rows, dims_.hidden}, options);
  fit(at.input.rstd1, {rows}, options.dtype(at::kFloat));
  kernels::rms_norm_forward(stream.residual, stream.delta, unit_.weight(BlockLeaves::input_norm), dims_.norm_eps, x, at.norm1,
                            at.input.rstd1);
}

// norm1 -> the heads, rotated.
HeadViews Block::project(const BlockContext& context, const Places& at) const {
  auto& qkv = at.qkv.qkv;
  fit(qkv, {at.input.x.size(0), dims_.qkv_width()}, at.input.x.options());
  qkv_.forward(qkv, at.norm1, at.qkv.low[0], context.dropout, context.scratch->projection);
  rotate(context, at);
  return heads(context, at);
}

// norm1 -> mixed.
void Block::attend(const BlockContext& context, const Places& at) const {
  at.matmuls.mixed = attention_forward(project(context, at), context.segments, at.matmuls.attention);
}

HeadViews Block::heads(const BlockContext& context, const Places& at) const {
  return head_views(dims_.qk_norm ? at.cheap.qk : at.qkv.qkv, at.qkv.qkv, dims_, context.time);
}

// Head norms keep the raw q and k, which their backward needs; without them the rotation is in place.
void Block::rotate(const BlockContext& context, const Places& at) const {
  auto& qkv = at.qkv.qkv;
  if (dims_.qk_norm) fit(at.cheap.qk, {qkv.size(0), dims_.q_width() + dims_.kv_width()}, qkv.options());
  kernels::rope_forward(qkv, dims_.qk_norm ? at.cheap.qk : qkv, head_layout(context), context.rotary, head_norms());
}

// mixed -> middle, norm2, gate_up, swiglu.
void Block::expand(const BlockContext& context, const Places& at) const {
  auto& m = at.matmuls;
  auto& c = at.cheap;
  const auto& x = at.input.x;
  const auto rows = x.size(0);
  const auto& delta = fit(context.scratch->hidden, {rows, dims_.hidden}, x.options());
  out_.forward(delta, m.mixed, m.low[1], context.dropout, context.scratch->projection);
  fit(m.middle, {rows, dims_.hidden}, x.options());
  fit(at.norm2, {rows, dims_.hidden}, x.options());
  fit(m.rstd2, {rows}, x.options().dtype(at::kFloat));
  kernels::rms_norm_forward(x, delta, unit_.weight(BlockLeaves::post_norm), dims_.norm_eps, m.middle, at.norm2, m.rstd2);
  fit(m.gate_up, {rows, 2 * dims_.intermediate}, x.options());
  fit(c.swiglu, {rows, dims_.intermediate}, x.options());
  gate_up_.forward_swiglu(m.gate_up, c.swiglu, at.norm2, m.low[2], context.dropout, context.scratch->projection);
}

void Block::backward(const at::Tensor& dstream, const BlockContext& context, BlockActivations& saved, bool further) const {
  const auto at = places(&saved, *context.scratch);
  if (recompute_ == Recompute::blocks) {  // forward again, up to the last matmul, which no gradient needs
    kernels::rms_norm_apply(saved.x, unit_.weight(BlockLeaves::input_norm), saved.rstd1, at.norm1);
    attend(context, at);
    expand(context, at);
  }
  backward_mlp(dstream, context, at);
  backward_attention(dstream, context, at, further);
}

// The gradients of attention's two ends lie where gate_up was: by then it is done with.
std::pair<at::Tensor, at::Tensor> Block::attention_gradients(const at::Tensor& gate_up, BlockScratch& scratch) const {
  const auto rows = gate_up.size(0), q = dims_.q_width(), qkv = dims_.qkv_width();
  if (q + qkv > gate_up.size(1))
    return {fit(scratch.dmixed, {rows, q}, gate_up.options()), fit(scratch.dqkv, {rows, qkv}, gate_up.options())};
  const at::Tensor flat = gate_up.view({-1});
  return {flat.narrow(0, 0, rows * q).view({rows, q}), flat.narrow(0, rows * q, rows * qkv).view({rows, qkv})};
}

void Block::backward_mlp(const at::Tensor& dstream, const BlockContext& context, const Places& at) const {
  auto& scratch = *context.scratch;
  auto& m = at.matmuls;
  auto& c = at.cheap;
  const auto rows = dstream.size(0);
  // gate_up turns into its own gradient. Where SwiGLU's output was not kept it is made again on the way; where it was, its place is needed
  // once the weights have seen it.
  const bool again = lacks_cheap();
  const auto backward_weight = [&] { down_.backward_weight(dstream, c.swiglu, at.input.low[3], context.dropout, scratch.projection); };
  down_.begin_backward(dstream, scratch.projection);
  if (!again) backward_weight();
  down_.backward_swiglu(m.gate_up, c.swiglu, again, dstream, context.dropout, scratch.projection);
  if (again) backward_weight();

  if (again) kernels::rms_norm_apply(m.middle, unit_.weight(BlockLeaves::post_norm), m.rstd2, at.norm2);
  const auto& dnorm = fit(scratch.hidden, {rows, dims_.hidden}, dstream.options());
  gate_up_.begin_backward(m.gate_up, scratch.projection);
  gate_up_.backward_input(dnorm, m.gate_up, context.dropout, scratch.projection);
  gate_up_.backward_weight(m.gate_up, at.norm2, m.low[2], context.dropout, scratch.projection);
  kernels::rms_norm_backward(dnorm, m.middle, unit_.weight(BlockLeaves::post_norm), m.rstd2, dstream, kernels::Into::add,
                             unit_.gradient(BlockLeaves::post_norm));
  unit_.gradient_ready(BlockLeaves::post_norm);
}

void Block::backward_attention(const at::Tensor& dstream, const BlockContext& context, const Places& at, bool further) const {
  auto& scratch = *context.scratch;
  auto& m = at.matmuls;
  const auto [dmixed, dqkv] = attention_gradients(m.gate_up, scratch);
  out_.begin_backward(dstream, scratch.projection);
  out_.backward_input(dmixed, dstream, context.dropout, scratch.projection);
  out_.backward_weight(dstream, m.mixed, m.low[1], context.dropout, scratch.projection);

  if (recompute_ != Recompute::none) kernels::rms_norm_apply(at.input.x, unit_.weight(BlockLeaves::input_norm), at.input.rstd1, at.norm1);
  if (recompute_ == Recompute::qkv) project(context, at);
  if (recompute_ == Recompute::norms && dims_.qk_norm) rotate(context, at);
  const auto gradients = attention_backward(dmixed, heads(context, at), context.segments, m.attention);
  kernels::rope_backward(gradients.dq, gradients.dk, gradients.dv, dqkv, head_layout(context), context.rotary, head_norms(), at.qkv.qkv);
  if (dims_.qk_norm) {
    unit_.gradient_ready(leaves_.q_norm);
    unit_.gradient_ready(leaves_.k_norm);
  }
  const auto& dnorm = scratch.hidden;
  qkv_.begin_backward(dqkv, scratch.projection);
  if (!further && !unit_.trainable())  // nothing below is trained: adapters alone need their part
    return qkv_.backward_weight(dqkv, at.norm1, at.qkv.low[0], context.dropout, scratch.projection);
  qkv_.backward_input(dnorm, dqkv, context.dropout, scratch.projection);
  qkv_.backward_weight(dqkv, at.norm1, at.qkv.low[0], context.dropout, scratch.projection);
  kernels::rms_norm_backward(dnorm, at.input.x, unit_.weight(BlockLeaves::input_norm), at.input.rstd1, dstream, kernels::Into::add,
                             unit_.gradient(BlockLeaves::input_norm));
  unit_.gradient_ready(BlockLeaves::input_norm);
}

}  // namespace lockstep::model
