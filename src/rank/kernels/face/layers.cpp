// The kernels of a model's layers as tensors see them: checks shapes and types, then calls the device's. SwiGLU has a file of its own.
#include "rank/kernels/kernels.h"

#include <ATen/ops/sort.h>

#include "rank/kernels/face/face.h"

namespace lockstep::kernels {

namespace {

// Scratch for column sums. Lives as long as the launch needs it: the allocator reuses memory in stream order.
at::Tensor partials_for(const at::Tensor& like, std::int64_t width) {
  return at::empty({table_of(like).partial_rows, width}, like.options().dtype(at::kFloat));
}

// A GPU cannot ask without waiting; there, tokens were checked when they were read.
void check_tokens(const at::Tensor& tokens, std::int64_t vocab) {
  const auto* token = tokens.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < tokens.numel(); ++i)
    if (token[i] < 0 || token[i] >= vocab)
      throw base::data_error("model",
                             "token {} is outside the vocabulary of {} (model.vocab_size). The data was made with another tokenizer.",
                             token[i], vocab);
}

HeadGradient head_gradient(const at::Tensor& t) {
  expect(t.dim() == 4 && t.stride(3) == 1, "head gradients are [batch, heads, time, head_dim] with a dense last dimension");
  return {t.const_data_ptr(), t.stride(0), t.stride(1), t.stride(2)};
}

const std::int32_t* positions_of(const HeadLayout& layout) {
  return layout.positions.defined() ? layout.positions.const_data_ptr<std::int32_t>() : nullptr;
}

}  // namespace

void rms_norm_forward(const at::Tensor& residual, const at::Tensor& delta, const at::Tensor& weight, double eps, const at::Tensor& x,
                      const at::Tensor& out, const at::Tensor& rstd) {
  expect(residual.dim() == 2 && same(residual, out), "norm: input and output are [rows, width]");
  expect(weight.numel() == residual.size(1) && weight.scalar_type() == residual.scalar_type(), "norm: one weight a column");
  expect(rstd.numel() == residual.size(0) && rstd.scalar_type() == at::kFloat, "norm: one f32 rstd a row");
  if (delta.defined()) expect(same(residual, delta) && same(residual, x), "norm: delta and x are shaped like the residual");
  table_of(out).rms_norm_forward({.residual = residual.const_data_ptr(),
                                  .delta = delta.defined() ? delta.const_data_ptr() : nullptr,
                                  .weight = weight.const_data_ptr(),
                                  .x_out = delta.defined() ? x.data_ptr() : nullptr,
                                  .out = out.data_ptr(),
                                  .rstd = rstd.data_ptr<float>(),
                                  .rows = residual.size(0),
                                  .width = residual.size(1),
                                  .eps = float(eps),
                                  .type = type_of(out)},
                                 stream_of(out));
}

void rms_norm_apply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd, const at::Tensor& out) {
  expect(x.dim() == 2 && same(x, out), "norm: input and output are [rows, width]");
  table_of(out).rms_norm_apply({.x = x.const_data_ptr(),
                                .weight = weight.const_data_ptr(),
                                .rstd = rstd.const_data_ptr<float>(),
                                .out = out.data_ptr(),
                                .rows = x.size(0),
                                .width = x.size(1),
                                .type = type_of(out)},
                               stream_of(out));
}

void rms_norm_backward(const at::Tensor& dout, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd, const at::Tensor& dx,
                       Into into, const at::Tensor& dweight) {
  expect(x.dim() == 2 && same(dout, x) && same(dx, x), "norm: dout, x and dx are [rows, width]");
  expect(!dweight.defined() || dweight.numel() == x.size(1), "norm: one weight gradient a column");
  const auto partials = partials_for(x, x.size(1));
  table_of(dx).rms_norm_backward({.dout = dout.const_data_ptr(),
                                  .x = x.const_data_ptr(),
                                  .weight = weight.const_data_ptr(),
                                  .rstd = rstd.const_data_ptr<float>(),
                                  .dx = dx.data_ptr(),
                                  .dweight = dweight.defined() ? dweight.data_ptr() : nullptr,
                                  .partials = partials.data_ptr<float>(),
                                  .rows = x.size(0),
                                  .width = x.size(1),
                                  .type = type_of(x),
                                  .gradient_type = dweight.defined() ? type_of(dweight) : Type::f32,
                                  .accumulate = into == Into::add},
                                 stream_of(dx));
}

void rope_forward(const at::Tensor& in, const at::Tensor& out, const HeadLayout& layout, const RotaryTable& rotary,
                  const HeadNorms& norms) {
  const auto rotated = (layout.heads + layout.kv_heads) * layout.head_dim;
  expect(in.dim() == 2 && in.size(1) >= rotated && out.size(1) >= rotated && in.size(0) == out.size(0),
         "rope: packed [rows, heads x head_dim]");
  expect(rotary.cosine.size(0) >= layout.time && rotary.cosine.size(1) == layout.head_dim / 2, "rope: a table row for every position");
  table_of(out).rope_forward({.in = in.const_data_ptr(),
                              .out = out.data_ptr(),
                              .in_stride = in.stride(0),
                              .out_stride = out.stride(0),
                              .cosine = rotary.cosine.const_data_ptr<float>(),
                              .sine = rotary.sine.const_data_ptr<float>(),
                              .positions = positions_of(layout),
                              .q_weight = norms.q.defined() ? norms.q.const_data_ptr() : nullptr,
                              .k_weight = norms.k.defined() ? norms.k.const_data_ptr() : nullptr,
                              .rows = in.size(0),
                              .time = layout.time,
                              .heads = layout.heads,
                              .kv_heads = layout.kv_heads,
                              .head_dim = layout.head_dim,
                              .eps = float(norms.eps),
                              .type = type_of(out)},
                             stream_of(out));
}

void rope_backward(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const at::Tensor& dqkv, const HeadLayout& layout,
                   const RotaryTable& rotary, const HeadNorms& norms, const at::Tensor& qkv) {
  const auto width = (layout.heads + 2 * layout.kv_heads) * layout.head_dim;
  expect(dqkv.dim() == 2 && dqkv.size(1) == width && dqkv.is_contiguous(), "rope: dqkv is packed [rows, (heads + 2 kv_heads) x head_dim]");
  expect(dk.size(1) % layout.kv_heads == 0 && dk.size(1) == dv.size(1), "rope: dk and dv have a gradient a head or a key-value head");
  const bool with_norms = norms.q.defined();
  const auto partials = with_norms ? partials_for(dqkv, 2 * layout.head_dim) : at::Tensor();
  table_of(dqkv).rope_backward({.dq = head_gradient(dq),
                                .dk = head_gradient(dk),
                                .dv = head_gradient(dv),
                                .dqkv = dqkv.data_ptr(),
                                .cosine = rotary.cosine.const_data_ptr<float>(),
                                .sine = rotary.sine.const_data_ptr<float>(),
                                .positions = positions_of(layout),
                                .qkv = with_norms ? qkv.const_data_ptr() : nullptr,
                                .q_weight = with_norms ? norms.q.const_data_ptr() : nullptr,
                                .k_weight = with_norms ? norms.k.const_data_ptr() : nullptr,
                                .dq_weight = norms.dq.defined() ? norms.dq.data_ptr() : nullptr,
                                .dk_weight = norms.dk.defined() ? norms.dk.data_ptr() : nullptr,
                                .partials = with_norms ? partials.data_ptr<float>() : nullptr,
                                .rows = dqkv.size(0),
                                .time = layout.time,
                                .heads = layout.heads,
                                .kv_heads = layout.kv_heads,
                                .head_dim = layout.head_dim,
                                .kv_repeat = dk.size(1) / layout.kv_heads,
                                .eps = float(norms.eps),
                                .type = type_of(dqkv),
                                .gradient_type = norms.dq.defined() ? type_of(norms.dq) : Type::f32},
                               stream_of(dqkv));
}

void bias_backward(const at::Tensor& dout, const at::Tensor& dbias) {
  expect(dout.dim() == 2 && dout.is_contiguous() && dbias.numel() == dout.size(1), "bias: one number a column");
  const auto partials = partials_for(dout, dout.size(1));
  table_of(dout).bias_backward({.dout = dout.const_data_ptr(),
                                .dbias = dbias.data_ptr(),
                                .partials = partials.data_ptr<float>(),
                                .rows = dout.size(0),
                                .width = dout.size(1),
                                .type = type_of(dout),
                                .gradient_type = type_of(dbias)},
                               stream_of(dout));
}

void embedding_forward(const at::Tensor& tokens, const at::Tensor& weight, const at::Tensor& out) {
  expect(tokens.is_contiguous() && tokens.scalar_type() == at::kLong && tokens.numel() == out.size(0), "embedding: one i64 token a row");
  if (tokens.is_cpu()) check_tokens(tokens, weight.size(0));
  table_of(out).embedding_forward({.tokens = tokens.const_data_ptr<std::int64_t>(),
                                   .weight = weight.const_data_ptr(),
                                   .out = out.data_ptr(),
                                   .rows = out.size(0),
                                   .width = out.size(1),
                                   .vocab = weight.size(0),
                                   .type = type_of(out)},
                                  stream_of(out));
}

void embedding_backward(const at::Tensor& tokens, const at::Tensor& dout, const at::Tensor& dweight) {
  expect(tokens.is_contiguous() && tokens.scalar_type() == at::kLong && tokens.numel() == dout.size(0), "embedding: one i64 token a row");
  at::Tensor sorted = tokens.view({-1}), order;
  if (dout.is_cuda() || dweight.scalar_type() != at::kFloat) {
    // A GPU sorts by digits: 32 bits are half the passes of 64.
    std::tie(sorted, order) = at::sort(sorted.to(at::kInt), /*stable=*/true, 0, false);
    sorted = sorted.to(at::kLong);
  }
  at::Tensor partials;
  if (dout.is_cuda()) {
    const auto stretches = (dout.size(0) + kEmbeddingStretch - 1) / kEmbeddingStretch;
    partials = at::empty({2 * stretches, dout.size(1)}, dout.options().dtype(at::kFloat));
  }
  table_of(dout).embedding_backward({.tokens = sorted.const_data_ptr<std::int64_t>(),
                                     .order = order.defined() ? order.const_data_ptr<std::int64_t>() : nullptr,
                                     .dout = dout.const_data_ptr(),
                                     .dweight = dweight.data_ptr(),
                                     .rows = dout.size(0),
                                     .width = dout.size(1),
                                     .vocab = dweight.size(0),
                                     .type = type_of(dout),
                                     .gradient_type = type_of(dweight),
                                     .partials = partials.defined() ? partials.data_ptr<float>() : nullptr},
                                    stream_of(dout));
}

void cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& losses, const at::Tensor& scale,
                   const at::Tensor& correct) {
  expect(logits.dim() == 2 && logits.is_contiguous() && targets.numel() == logits.size(0) && losses.numel() == logits.size(0),
         "cross-entropy: one target and one loss a row");
  expect(!correct.defined() || correct.numel() == logits.size(0), "cross-entropy: a row is correct or not");
  table_of(logits).cross_entropy({.logits = logits.data_ptr(),
                                  .targets = targets.const_data_ptr<std::int64_t>(),
                                  .scale = scale.defined() ? scale.const_data_ptr<float>() : nullptr,
                                  .losses = losses.data_ptr<float>(),
                                  .correct = correct.defined() ? correct.data_ptr<float>() : nullptr,
                                  .rows = logits.size(0),
                                  .vocab = logits.size(1),
                                  .type = type_of(logits),
                                  .gradient = scale.defined()},
                                 stream_of(logits));
}

void cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& losses, const at::Tensor& scale) {
  cross_entropy(logits, targets, losses, scale, {});
}

void dropout(const at::Tensor& x, const at::Tensor& out, const at::Tensor& keys, std::int64_t time, std::uint64_t site, double share) {
  expect(x.dim() == 2 && same(x, out) && keys.numel() * time == x.size(0), "dropout: one key for every `time` rows");
  table_of(out).dropout({.in = x.const_data_ptr(),
                         .out = out.data_ptr(),
                         .keys = keys.const_data_ptr<std::int64_t>(),
                         .rows = x.size(0),
                         .width = x.size(1),
                         .time = time,
                         .site = site,
                         .share = float(share),
                         .type = type_of(x)},
                        stream_of(out));
}

}  // namespace lockstep::kernels
