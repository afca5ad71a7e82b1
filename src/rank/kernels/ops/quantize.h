// Blockwise quantization of weights, as bitsandbytes does it, and the way back.
#pragma once

#include <cstdint>
#include <span>

#include "rank/kernels/ops/op.h"

namespace lockstep::kernels {

struct QuantizedBlocks;  // kernels.h

// Quantized weights, as bitsandbytes holds them: kWeightBlock neighbors share a scale. nf4: two codes per byte, the first in the high
// half, each one of 16 values times the scale. int8: a signed byte times the scale.
enum class Codes : int { nf4, int8 };
inline constexpr std::int64_t kWeightBlock = 64;
inline constexpr std::int64_t kScaleBlock = 256;  // scales that share a scale, where scales are held in codes too
std::int64_t code_bytes(Codes kind, std::int64_t count);

struct QuantizeBlocks {
  const void* in;       // [count]
  std::uint8_t* codes;  // [count / 2, rounded up] or [count]
  float* scales;        // [count / kWeightBlock, rounded up]
  std::int64_t count;
  Type type;
  Codes kind;
};
// codes: u8 [code_bytes]; scales: f32, one a block of kWeightBlock values.
void quantize_blocks(const at::Tensor& values, Codes kind, const at::Tensor& codes, const at::Tensor& scales);

// Scales, less their offset, as codes into a map of 256 values times a scale of their own.
struct QuantizeScales {
  const float* in;      // [count]
  const float* map;     // [256] ascending
  std::uint8_t* codes;  // [count]
  float* outer;         // [count / kScaleBlock, rounded up]
  std::int64_t count;
  float offset;
};
// Writes blocks.scales and blocks.outer, with its map and offset.
void quantize_scales(const at::Tensor& exact, const QuantizedBlocks& blocks);

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
// out: the pieces' weights one after another; piece i has counts[i] of them.
void dequantize(std::span<const QuantizedBlocks> pieces, std::span<const std::int64_t> counts, Codes kind, const at::Tensor& out);

#define LOCKSTEP_QUANTIZE_OPS(op) op(quantize_blocks, QuantizeBlocks) op(quantize_scales, QuantizeScales) op(dequantize, Dequantize)

}  // namespace lockstep::kernels
