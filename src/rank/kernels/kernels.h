// The kernels as tensors see them: each checks its shapes and calls the device's table. Contiguous tensors; work is on the
// device's current stream; nothing waits for the host.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "rank/kernels/table.h"

namespace lockstep::kernels {

// The kernels of a device. For CUDA this loads the plug-in on first use.
const Table& table_for(const at::Device& device);

// x = residual + delta (x = residual where delta is undefined; then x is not written), out = x * rstd * weight.
void rms_norm_forward(const at::Tensor& residual, const at::Tensor& delta, const at::Tensor& weight, double eps, const at::Tensor& x,
                      const at::Tensor& out, const at::Tensor& rstd);
void rms_norm_apply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd, const at::Tensor& out);
enum class Into { write, add };
void rms_norm_backward(const at::Tensor& dout, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd, const at::Tensor& dx,
                       Into into, const at::Tensor& dweight);  // dweight undefined: not trained

struct HeadLayout {
  std::int64_t time, heads, kv_heads, head_dim;
  at::Tensor positions = {};  // [rows] i32; undefined: row % time
};
struct RotaryTable {
  at::Tensor cosine, sine;  // [time, head_dim/2] f32
};
// inverse_frequencies: [head_dim/2] f32 on the CPU.
RotaryTable rotary_table(std::int64_t time, const at::Tensor& inverse_frequencies, const at::Device& device);
// Head norms: both undefined or both given.
struct HeadNorms {
  at::Tensor q, k;    // [head_dim]
  at::Tensor dq, dk;  // their gradients, backward only; undefined: not trained
  double eps = 0;
};
// in, out: [rows, at least (heads + kv_heads) x head_dim]; in place where they are the same tensor.
void rope_forward(const at::Tensor& in, const at::Tensor& out, const HeadLayout& layout, const RotaryTable& rotary, const HeadNorms& norms);
// dq: [batch, heads, time, head_dim]; dk, dv: [batch, heads or kv_heads, time, head_dim]; qkv: raw, only read with norms.
void rope_backward(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const at::Tensor& dqkv, const HeadLayout& layout,
                   const RotaryTable& rotary, const HeadNorms& norms, const at::Tensor& qkv);

void swiglu_forward(const at::Tensor& gate_up, const at::Tensor& out);
void swiglu_backward(const at::Tensor& gate_up, const at::Tensor& dout, const at::Tensor& dgate_up, const at::Tensor& out_again);

// SwiGLU together with the matmul beside it: whether there are such kernels for gate_up's device, type and width, for products over `inner`
// numbers, and for adapters of `rank` (0: none).
bool fuses_swiglu(const at::Tensor& gate_up, std::int64_t inner, std::int64_t rank);
// The factors of an adapter's thin product: low has its rows, weight its columns. Both undefined: none.
struct ThinProduct {
  at::Tensor low, weight;
};
// gate_up = x weight^T (+ thin.low thin.weight^T, in halves), out = silu(gate) * up.
void gate_up_swiglu(const at::Tensor& gate_up, const at::Tensor& out, const at::Tensor& x, const at::Tensor& weight,
                    const ThinProduct& thin);
// gate_up becomes its own gradient, where that of silu(gate) * up is dout weight (+ thin.low thin.weight). out_again: undefined or made
// again.
void down_backward_swiglu(const at::Tensor& gate_up, const at::Tensor& out_again, const at::Tensor& dout, const at::Tensor& weight,
                          const ThinProduct& thin);

void bias_backward(const at::Tensor& dout, const at::Tensor& dbias);

void embedding_forward(const at::Tensor& tokens, const at::Tensor& weight, const at::Tensor& out);
void embedding_backward(const at::Tensor& tokens, const at::Tensor& dout, const at::Tensor& dweight);

// losses: [rows] f32. scale undefined: losses alone; else logits become scale * their gradient. correct: [rows] f32, 1 where the target is
// the likeliest token; undefined: nobody asks.
void cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& losses, const at::Tensor& scale,
                   const at::Tensor& correct = {});

// out = x with `share` of its elements dropped; keys: [rows / time] i64 on the device. x and out may be the same.
void dropout(const at::Tensor& x, const at::Tensor& out, const at::Tensor& keys, std::int64_t time, std::uint64_t site, double share);

// out (f32) = std * normal numbers of (key, first + i).
void random_normal(const at::Tensor& out, std::uint64_t key, double std, std::int64_t first = 0);

// Sum of squares over flat buffers: f64 scalar on their device.
at::Tensor sum_of_squares(at::TensorList flats);

struct GradientRules {
  double nominal_tokens = 1;  // the constant that the loss was divided by
  double max_norm = 0;        // 0: no clipping
  bool dynamic_scale = false;
  double scale_window = 2000;
};
// control: [kControlNumbers] f64, laid out as Control; scale: f32 scalar; the totals: f64 scalars. All on one device.
void finish_gradients(const at::Tensor& control, const at::Tensor& scale, const at::Tensor& sum_of_squares, const at::Tensor& token_count,
                      const at::Tensor& loss_sum, const GradientRules& rules);

// Buffers of one length. exact: f32 masters, or bf16 weights that are their own. weights: the masters' 16-bit copy; undefined or
// the same tensor as exact where there is none. first, second: the states that the rule has.
struct UpdateBuffers {
  at::Tensor gradient, exact, weights, first, second;
};
struct UpdateSettings {
  Rule rule = Rule::adamw;
  double rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, decay = 0;
  std::uint64_t key = 0;   // of the random bits that round bf16 results
  std::int64_t place = 0;  // of the first number in its unit
  bool zero_gradient = true;
};
void update(const UpdateBuffers& buffers, const at::Tensor& control, const UpdateSettings& settings);

// AdamW with moments in 8 bits, in blocks of kQuantBlock numbers.
struct QuantState {
  at::Tensor codes;  // [count] u8
  at::Tensor scale;  // [blocks] f32
  at::Tensor map;    // [256] f32, ascending
};
void adamw_8bit(const UpdateBuffers& buffers, const QuantState& first, const QuantState& second, const at::Tensor& control,
                const UpdateSettings& settings);

// Muon's momentum (see Nesterov): out is f32 or bf16. Of the settings it takes beta1, key, place and zero_gradient.
void nesterov(const at::Tensor& gradient, const at::Tensor& momentum, const at::Tensor& out, const at::Tensor& control,
              const UpdateSettings& settings);

// The 16 levels of NF4: f32, ascending, on the host.
at::Tensor nf4_levels();
// The 256 values that quantised scales take: bitsandbytes' signed dynamic map.
at::Tensor dynamic_map(const at::Device& device);
std::int64_t code_bytes(Codes kind, std::int64_t count);
// codes: u8 [code_bytes]; scales: f32, one a block of kWeightBlock values.
void quantize_blocks(const at::Tensor& values, Codes kind, const at::Tensor& codes, const at::Tensor& scales);
// A run of weights as codes. Scales are f32 [blocks], or u8 codes of them with an outer scale for every kScaleBlock.
struct QuantizedBlocks {
  at::Tensor codes, scales;
  at::Tensor outer = {}, map = {};  // f32 [blocks / kScaleBlock, rounded up], f32 [256]: where scales are codes
  double offset = 0;                // an f32's value, likewise
};
// Writes blocks.scales and blocks.outer, with its map and offset.
void quantize_scales(const at::Tensor& exact, const QuantizedBlocks& blocks);
// out: the pieces' weights one after another; piece i has counts[i] of them.
void dequantize(std::span<const QuantizedBlocks> pieces, std::span<const std::int64_t> counts, Codes kind, const at::Tensor& out);

// out = scale left right (+ out) (+ bias): [rows, columns] = [rows, inner] [inner, columns]; either factor may be a transposed view.
// 16-bit factors on CUDA; out may be f32. False where there is no kernel for the device, type or sizes: then nothing was done.
bool matmul(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, Into into, const at::Tensor& bias = {},
            double scale = 1);

}  // namespace lockstep::kernels
