// The kernels as tensors see them: a device's table, and what several tensors form together. The functions are declared in ops/, each
// beside what its kernels take.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "rank/kernels/table.h"

namespace lockstep::kernels {

// The kernels of a device. For CUDA this loads the plug-in on first use.
const Table& table_for(const at::Device& device);

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

// The factors of an adapter's thin product: low has its rows, weight its columns. Both undefined: none.
struct ThinProduct {
  at::Tensor low, weight;
};

struct GradientRules {
  double nominal_tokens = 1;  // the constant that the loss was divided by
  double max_norm = 0;        // 0: no clipping
  bool dynamic_scale = false;
  double scale_window = 2000;
};

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

// AdamW with moments in 8 bits, in blocks of kQuantBlock numbers.
struct QuantState {
  at::Tensor codes;  // [count] u8
  at::Tensor scale;  // [blocks] f32
  at::Tensor map;    // [256] f32, ascending
};

// The 16 levels of NF4: f32, ascending, on the host.
at::Tensor nf4_levels();
// The 256 values that codes of 8 bits stand for, ascending from -1 (without a sign: from 0) to 1: bitsandbytes' dynamic map.
at::Tensor dynamic_map(bool with_sign, const at::Device& device);
// A run of weights as codes. Scales are f32 [blocks], or u8 codes of them with an outer scale for every kScaleBlock.
struct QuantizedBlocks {
  at::Tensor codes, scales;
  at::Tensor outer = {}, map = {};  // f32 [blocks / kScaleBlock, rounded up], f32 [256]: where scales are codes
  double offset = 0;                // an f32's value, likewise
};

}  // namespace lockstep::kernels
