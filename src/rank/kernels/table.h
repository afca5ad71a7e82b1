// What every kernel takes, in raw pointers and sizes, and the table of them that each kind of device fills. Free of LibTorch.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

enum class Type : int { f32, bf16, f16 };
using Stream = void*;  // cudaStream_t; unused on a CPU

// out = norm(x) * weight with x = residual + delta (delta may be null, then x = residual and x_out is not written).
struct RmsNormForward {
  const void *residual, *delta, *weight;  // [rows, width], [rows, width], [width]
  void *x_out, *out;                      // [rows, width]
  float* rstd;                            // [rows] 1 / root mean square
  std::int64_t rows, width;
  float eps;
  Type type;
};

// out = x * rstd * weight again, from what forward kept: the same bits.
struct RmsNormApply {
  const void *x, *weight;
  const float* rstd;
  void* out;
  std::int64_t rows, width;
  Type type;
};

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

// Rotates q and k of packed [rows, heads x head_dim] by their position (positions[row], or row % time); rotary pairs are (i, i +
// head_dim/2). With norm weights, each head is RMS-normalised first. in == out is allowed.
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

// A gradient as attention leaves it: [batch, heads, time, head_dim] with any strides but the last.
struct HeadGradient {
  const void* data;
  std::int64_t batch_stride, head_stride, time_stride;
};

// Packs attention's dq, dk, dv into dqkv [rows, (heads + 2 kv_heads) x head_dim], rotated back, and through the head norms.
// kv_repeat > 1: dk and dv hold one gradient a query head; those of a group are summed.
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

// out = silu(gate) * up; gate_up: [rows, 2 x width], gate first.
struct SwigluForward {
  const void* gate_up;
  void* out;  // [rows, width]
  std::int64_t rows, width;
  Type type;
};

// dgate_up may be gate_up itself; out (may be null, or dout itself) receives silu(gate) * up again, the same bits as forward's.
struct SwigluBackward {
  const void *gate_up, *dout;
  void *dgate_up, *out;
  std::int64_t rows, width;
  Type type;
};

// gate_up = x weight^T (+ low b^T, an adapter's share: gate's columns of low with gate's rows of b, up's with up's), out = silu(gate) * up.
// bf16; sides of matrices are multiples of 8.
struct GateUpSwiglu {
  const void *x, *weight;  // [rows, inner], [2 x width, inner]
  void *gate_up, *out;     // [rows, 2 x width], [rows, width]
  const void *low, *b;     // [rows, 2 x rank], [2 x width, rank], or null
  std::int64_t rows, width, inner, rank;
};

// d = dout weight (+ dlow a) is the gradient of silu(gate) * up; gate_up becomes its own gradient, and out, where it is not null,
// receives silu(gate) * up again. bf16; sides of matrices are multiples of 8.
struct DownBackwardSwiglu {
  const void *dout, *weight;  // [rows, inner], [inner, width]
  void *gate_up, *out;        // [rows, 2 x width], [rows, width] or null
  const void *dlow, *a;       // [rows, rank], [rank, width], or null
  std::int64_t rows, width, inner, rank;
};

// dbias += column sums of dout, in f32.
struct BiasBackward {
  const void* dout;  // [rows, width]
  void* dbias;
  float* partials;  // [partial_rows, width] scratch
  std::int64_t rows, width;
  Type type, gradient_type;
};

struct EmbeddingForward {
  const std::int64_t* tokens;  // [rows]
  const void* weight;          // [vocab, width]
  void* out;                   // [rows, width]
  std::int64_t rows, width, vocab;
  Type type;
};

// dweight[token] += dout. `order` lists the rows so that equal tokens are neighbours: each token's rows are summed in that order
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

// out[i] = std * normal number (key, first + i).
struct RandomNormal {
  float* out;
  std::uint64_t key;
  std::int64_t first, count;
  float std;
};

// partials[p] = sum of squares of the p-th block: their sum is the whole, in an order that never changes. Blocks are of one size whatever
// the buffer's: whoever holds some of a buffer's blocks has the same partials of them.
struct SumOfSquares {
  const void* values;
  std::int64_t count;
  Type type;
  double* partials;  // [square_blocks(count)]
};
inline constexpr std::int64_t kSquareBlock = 1 << 15;
constexpr std::int64_t square_blocks(std::int64_t count) { return (count + kSquareBlock - 1) / kSquareBlock; }

// What the optimizer decides on the device, so that no step waits for the host.
struct Control {
  double gradient_norm;  // of the true mean gradient, before clipping
  double factor;         // what an update multiplies a gradient with
  double skip;           // 1: this step changes nothing
  double updates;        // the optimizer's step count
  double loss_scale;     // f16: multiplies the loss
  double good_steps;     // since the scale last changed
  double skipped_in_a_row;
  double skipped_total;
};
inline constexpr int kControlNumbers = 8;

struct FinishGradients {
  Control* control;
  float* scale;  // what the next backward multiplies the loss with: loss_scale / nominal_tokens
  const double *sum_of_squares, *token_count, *loss_sum;
  double nominal_tokens;  // the constant that gradients were divided by
  double max_norm;        // 0: no clipping
  bool dynamic_scale;
  double scale_window;
};

// The arithmetic of an update. `apply` takes an update that was made elsewhere (in `gradient`) off the weights.
enum class Rule : int { adamw, lion, sgd, apply };

// One pass over flat buffers. Results in f32 are stored as they are; those in bf16 are rounded stochastically, by bits that follow
// from (key, update count, place) alone.
struct Update {
  void* gradient;
  void* exact;                // weights in the precision that counts: f32 masters, or bf16 weights that have none
  void* weights;              // 16-bit copy of f32 masters, written along; null where forward reads `exact`
  void *first, *second;       // states: adamw both, lion and sgd the first, apply none
  std::int64_t count, place;  // place: of the first number in its unit
  double rate, beta1, beta2, epsilon, decay;
  std::uint64_t key;
  const Control* control;
  Type gradient_type, exact_type, weight_type, state_type;
  Rule rule;
  bool zero_gradient;
};

// AdamW whose moments are 8-bit codes: in blocks of 256 numbers, a moment is map[code] times the block's largest magnitude. The states of
// Update are null.
struct AdamW8bit : Update {
  std::uint8_t *first_codes, *second_codes;
  float *first_scale, *second_scale;    // [blocks]
  const float *first_map, *second_map;  // [256] ascending
};
inline constexpr std::int64_t kQuantBlock = 256;

// Muon's first half: momentum = beta momentum + (1 - beta) g; out = (1 - beta) g + beta momentum. g: the gradient, clipped.
struct Nesterov {
  void *gradient, *momentum, *out;
  std::int64_t count, place;
  double beta;
  std::uint64_t key;  // rounds momenta in bf16
  const Control* control;
  Type gradient_type, momentum_type, out_type;
  bool zero_gradient;
};

// out = scale left right (+ out where it accumulates) (+ bias), for 16-bit factors whose products are summed in f32. Matrices lie in
// memory row by row; a transposed factor lies there as its transpose.
struct Matmul {
  const void *left, *right;  // [rows, inner], [inner, columns]
  const void* bias;          // [columns] of out's type, or null
  void* out;                 // [rows, columns]
  std::int64_t rows, columns, inner;
  std::int64_t left_stride, right_stride, out_stride;  // elements from row to row in memory
  bool left_transposed, right_transposed, accumulate;
  float scale;
  bool search;  // time the library's algorithms at first use; else take its own choice, which is the same in every process
  Type type, out_type;
};

// Weights in few bits, as bitsandbytes holds them: kWeightBlock neighbours share a scale. nf4: two codes a byte, the first in the high
// half, each one of 16 values times the scale. int8: a signed byte times the scale.
enum class Codes : int { nf4, int8 };
inline constexpr std::int64_t kWeightBlock = 64;
inline constexpr std::int64_t kScaleBlock = 256;  // scales that share a scale, where scales are held in codes too

struct QuantizeBlocks {
  const void* in;       // [count]
  std::uint8_t* codes;  // [count / 2, rounded up] or [count]
  float* scales;        // [count / kWeightBlock, rounded up]
  std::int64_t count;
  Type type;
  Codes kind;
};

// Scales, less their offset, as codes into a map of 256 values times a scale of their own.
struct QuantizeScales {
  const float* in;      // [count]
  const float* map;     // [256] ascending
  std::uint8_t* codes;  // [count]
  float* outer;         // [count / kScaleBlock, rounded up]
  std::int64_t count;
  float offset;
};

// A scale is scales[block], or where that is null map[scale_codes[block]] * outer[block / kScaleBlock] + offset, each step rounded.
struct QuantizedPiece {
  const std::uint8_t* codes;
  const float* scales;
  const std::uint8_t* scale_codes;
  const float *outer, *map;
  float offset;
  std::int64_t first, count;  // its place in the output
};
inline constexpr int kQuantizedPieces = 4;
struct Dequantize {
  QuantizedPiece pieces[kQuantizedPieces];
  int piece_count;
  void* out;
  Type type;
  Codes kind;
};

// One device's kernels. Each launches on the stream and returns.
struct Table {
  int partial_rows;  // rows of scratch for column sums
  void (*rms_norm_forward)(const RmsNormForward&, Stream);
  void (*rms_norm_apply)(const RmsNormApply&, Stream);
  void (*rms_norm_backward)(const RmsNormBackward&, Stream);
  void (*rope_forward)(const RopeForward&, Stream);
  void (*rope_backward)(const RopeBackward&, Stream);
  void (*swiglu_forward)(const SwigluForward&, Stream);
  void (*swiglu_backward)(const SwigluBackward&, Stream);
  void (*bias_backward)(const BiasBackward&, Stream);
  void (*embedding_forward)(const EmbeddingForward&, Stream);
  void (*embedding_backward)(const EmbeddingBackward&, Stream);
  void (*cross_entropy)(const CrossEntropy&, Stream);
  void (*dropout)(const Dropout&, Stream);
  void (*random_normal)(const RandomNormal&, Stream);
  void (*sum_of_squares)(const SumOfSquares&, Stream);
  void (*finish_gradients)(const FinishGradients&, Stream);
  void (*update)(const Update&, Stream);
  void (*adamw_8bit)(const AdamW8bit&, Stream);
  void (*nesterov)(const Nesterov&, Stream);
  void (*quantize_blocks)(const QuantizeBlocks&, Stream);
  void (*quantize_scales)(const QuantizeScales&, Stream);
  void (*dequantize)(const Dequantize&, Stream);
  bool (*matmul)(const Matmul&, Stream);                // false: no algorithm for these sizes. Null on a CPU, where ATen's serves.
  void (*gate_up_swiglu)(const GateUpSwiglu&, Stream);  // these two on compute capability 9.0 alone
  void (*down_backward_swiglu)(const DownBackwardSwiglu&, Stream);
};

}  // namespace lockstep::kernels
