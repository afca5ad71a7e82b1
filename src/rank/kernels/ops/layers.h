// The ops of a model's layers: norms, rotary embedding, SwiGLU, biases, embedding, cross-entropy, dropout.
#pragma once

#include <cstdint>

#include "rank/kernels/ops/op.h"

namespace lockstep::kernels {

struct HeadLayout;  // these three hold tensors: kernels.h
struct RotaryTable;
struct HeadNorms;

// out = norm(x) * weight with x = residual + delta (delta may be null, then x = residual and x_out is not written).
struct RmsNormForward {
  const void *residual, *delta, *weight;  // [rows, width], [rows, width], [width]
  void *x_out, *out;                      // [rows, width]
  float* rstd;                            // [rows] 1 / root mean square
  std::int64_t rows, width;
  float eps;
  Type type;
};
// x = residual + delta (x = residual where delta is undefined; then x is not written), out = x * rstd * weight.
void rms_norm_forward(const at::Tensor& residual, const at::Tensor& delta, const at::Tensor& weight, double eps, const at::Tensor& x,
                      const at::Tensor& out, const at::Tensor& rstd);

// out = x * rstd * weight again, from what forward kept: the same bits.
struct RmsNormApply {
  const void *x, *weight;
  const float* rstd;
  void* out;
  std::int64_t rows, width;
  Type type;
};
void rms_norm_apply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd, const at::Tensor& out);

// dx = (accumulate ? dx : 0) + gradient through the norm (dx may be dout where it does not accumulate); dweight += its gradient, summed in
// f32, where it is not null.
struct RmsNormBackward {
  const void *dout, *x, *weight;
  const float* rstd;
  void* dx;
  void* dweight;    // [width] or null
  float* partials;  // [partial_rows, width] scratch
  std::int64_t rows, width;
  Type type, gradient_type;
  bool accumulate;
};
void rms_norm_backward(const at::Tensor& dout, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd, const at::Tensor& dx,
                       Into into, const at::Tensor& dweight);  // dweight undefined: not trained

// Rotates q and k of packed [rows, heads x head_dim] by their position (positions[row], or row % time); rotary pairs are (i, i +
// head_dim/2). With norm weights, each head is RMS-normalized first. in == out is allowed.
struct RopeForward {
  const void* in;
  void* out;
  std::int64_t in_stride, out_stride;  // elements from row to row
  const float *cosine, *sine;          // [time, head_dim/2]
  const std::int32_t* positions;       // [rows] or null
  const void *q_weight, *k_weight;     // [head_dim] or null
  std::int64_t rows, time, heads, kv_heads, head_dim;
  float eps;
  Type type;
};
// in, out: [rows, at least (heads + kv_heads) x head_dim]; in place where they are the same tensor.
void rope_forward(const at::Tensor& in, const at::Tensor& out, const HeadLayout& layout, const RotaryTable& rotary, const HeadNorms& norms);

// A gradient as attention leaves it: [batch, heads, time, head_dim] with any strides but the last.
struct HeadGradient {
  const void* data;
  std::int64_t batch_stride, head_stride, time_stride;
};

// Packs attention's dq, dk, dv into dqkv [rows, (heads + 2 kv_heads) x head_dim], rotated back, and through the head norms.
// kv_repeat > 1: dk and dv hold one gradient per query head; those of a group are summed.
struct RopeBackward {
  HeadGradient dq, dk, dv;
  void* dqkv;
  const float *cosine, *sine;
  const std::int32_t* positions;  // [rows] or null
  const void* qkv;                // [rows, (heads + 2 kv_heads) x head_dim] before norm and rotation; only read with norm weights
  const void *q_weight, *k_weight;
  void *dq_weight, *dk_weight;  // or null
  float* partials;              // [partial_rows, 2 x head_dim] scratch, only with norm weights
  std::int64_t rows, time, heads, kv_heads, head_dim, kv_repeat;
  float eps;
  Type type, gradient_type;
};
// dq: [batch, heads, time, head_dim]; dk, dv: [batch, heads or kv_heads, time, head_dim]; qkv: raw, only read with norms.
void rope_backward(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const at::Tensor& dqkv, const HeadLayout& layout,
                   const RotaryTable& rotary, const HeadNorms& norms, const at::Tensor& qkv);

// out = silu(gate) * up; gate_up: [rows, 2 x width], gate first.
struct SwigluForward {
  const void* gate_up;
  void* out;  // [rows, width]
  std::int64_t rows, width;
  Type type;
};
void swiglu_forward(const at::Tensor& gate_up, const at::Tensor& out);

// dgate_up may be gate_up itself; out (may be null, or dout itself) receives silu(gate) * up again, the same bits as forward's.
struct SwigluBackward {
  const void *gate_up, *dout;
  void *dgate_up, *out;
  std::int64_t rows, width;
  Type type;
};
void swiglu_backward(const at::Tensor& gate_up, const at::Tensor& dout, const at::Tensor& dgate_up, const at::Tensor& out_again);

// dbias += column sums of dout, in f32.
struct BiasBackward {
  const void* dout;  // [rows, width]
  void* dbias;
  float* partials;  // [partial_rows, width] scratch
  std::int64_t rows, width;
  Type type, gradient_type;
};
void bias_backward(const at::Tensor& dout, const at::Tensor& dbias);

struct EmbeddingForward {
  const std::int64_t* tokens;  // [rows]
  const void* weight;          // [vocab, width]
  void* out;                   // [rows, width]
  std::int64_t rows, width, vocab;
  Type type;
};
void embedding_forward(const at::Tensor& tokens, const at::Tensor& weight, const at::Tensor& out);

// dweight[token] += dout. `order` lists the rows so that equal tokens are neighbors: each token's rows are summed in that order
// in f32 and added once, so the result is the same every time. Null on a CPU where gradients are f32 and need no order.
struct EmbeddingBackward {
  const std::int64_t *tokens, *order;  // tokens: sorted along with order where order is given
  const void* dout;
  void* dweight;
  std::int64_t rows, width, vocab;
  Type type, gradient_type;
  float* partials;  // [2 x (rows / kEmbeddingStretch, rounded up), width] scratch on CUDA, null on a CPU
};
inline constexpr std::int64_t kEmbeddingStretch = 128;  // most rows that one block sums
void embedding_backward(const at::Tensor& tokens, const at::Tensor& dout, const at::Tensor& dweight);

// losses[row] = -log softmax(logits[row])[target], 0 where the target is -100. With gradient, logits become
// scale * d(loss)/d(logits) in place.
struct CrossEntropy {
  void* logits;                 // [rows, vocab]
  const std::int64_t* targets;  // [rows]
  const float* scale;           // one number on the device
  float* losses;                // [rows]
  float* correct;               // [rows] 1 where the target is the likeliest token (of equals the first), else 0; or null
  std::int64_t rows, vocab;
  Type type;
  bool gradient;
};
// losses: [rows] f32. scale undefined: losses alone; else logits become scale * their gradient. correct: [rows] f32, 1 where the target is
// the likeliest token; undefined: nobody asks.
void cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& losses, const at::Tensor& scale,
                   const at::Tensor& correct);
void cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& losses, const at::Tensor& scale);

// out = in with `share` of its elements dropped and the others scaled up; in == out is allowed. Which fall follows from the key of their
// group of `time` rows, the site, and their place alone.
struct Dropout {
  const void* in;
  void* out;                 // [rows, width]
  const std::int64_t* keys;  // [rows / time]
  std::int64_t rows, width, time;
  std::uint64_t site;
  float share;
  Type type;
};
// out = x with `share` of its elements dropped; keys: [rows / time] i64 on the device. x and out may be the same.
void dropout(const at::Tensor& x, const at::Tensor& out, const at::Tensor& keys, std::int64_t time, std::uint64_t site, double share);

#define LOCKSTEP_LAYER_OPS(op)                                                                                                            \
  op(rms_norm_forward, RmsNormForward) op(rms_norm_apply, RmsNormApply) op(rms_norm_backward, RmsNormBackward)                            \
      op(rope_forward, RopeForward) op(rope_backward, RopeBackward) op(swiglu_forward, SwigluForward) op(swiglu_backward, SwigluBackward) \
          op(bias_backward, BiasBackward) op(embedding_forward, EmbeddingForward) op(embedding_backward, EmbeddingBackward)               \
              op(cross_entropy, CrossEntropy) op(dropout, Dropout)

}  // namespace lockstep::kernels
