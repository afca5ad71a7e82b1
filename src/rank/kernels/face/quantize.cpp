// Blockwise quantization as tensors see it.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/ceil_div.h"
#include "rank/kernels/face/face.h"
#include "rank/kernels/rules/nf4.h"

namespace lockstep::kernels {
namespace {

using base::ceil_div;

bool holds(const at::Tensor& tensor, at::ScalarType type, std::int64_t count) {
  return tensor.scalar_type() == type && tensor.numel() == count && tensor.is_contiguous();
}

}  // namespace

at::Tensor nf4_levels() {
  at::Tensor levels = at::empty({16}, at::kFloat);
  std::copy(nf4_values.begin(), nf4_values.end(), levels.mutable_data_ptr<float>());
  return levels;
}

at::Tensor dynamic_map(bool with_sign, const at::Device& device) {
  std::vector<at::Tensor> values = {at::tensor({0.0f, 1.0f})};
  // Seven decades below 1, each cut into twice as many equal parts as the one below it; a part is represented by its middle.
  for (int decade = 0; decade < 7; ++decade) {
    const std::int64_t parts = std::int64_t{1} << (with_sign ? decade : decade + 1);
    const at::Tensor edges = at::linspace(0.1, 1, parts + 1, at::kFloat);
    const at::Tensor middles = (edges.narrow(0, 0, parts) + edges.narrow(0, 1, parts)) / 2.0;
    values.push_back(middles * std::pow(10.0, decade - 6));
    if (with_sign) values.push_back(-values.back());
  }
  return std::get<0>(at::cat(values).sort()).to(device);
}

std::int64_t code_bytes(Codes kind, std::int64_t count) { return kind == Codes::nf4 ? (count + 1) / 2 : count; }

void quantize_blocks(const at::Tensor& values, Codes kind, const at::Tensor& codes, const at::Tensor& scales) {
  const auto count = values.numel();
  expect(values.is_contiguous() && holds(codes, at::kByte, code_bytes(kind, count)), "quantize: contiguous values, codes for all");
  expect(holds(scales, at::kFloat, ceil_div(count, kWeightBlock)), "quantize: one f32 scale a block");
  table_of(values).quantize_blocks({.in = values.const_data_ptr(),
                                    .codes = codes.data_ptr<std::uint8_t>(),
                                    .scales = scales.data_ptr<float>(),
                                    .count = count,
                                    .type = type_of(values),
                                    .kind = kind},
                                   stream_of(values));
}

void quantize_scales(const at::Tensor& exact, const QuantizedBlocks& blocks) {
  const auto count = exact.numel();
  expect(holds(exact, at::kFloat, count) && holds(blocks.scales, at::kByte, count), "quantize: a code for every scale");
  expect(holds(blocks.outer, at::kFloat, ceil_div(count, kScaleBlock)) && holds(blocks.map, at::kFloat, 256),
         "quantize: outer scales, map");
  table_of(exact).quantize_scales({.in = exact.const_data_ptr<float>(),
                                   .map = blocks.map.const_data_ptr<float>(),
                                   .codes = blocks.scales.data_ptr<std::uint8_t>(),
                                   .outer = blocks.outer.data_ptr<float>(),
                                   .count = count,
                                   .offset = static_cast<float>(blocks.offset)},
                                  stream_of(exact));
}

void dequantize(std::span<const QuantizedBlocks> pieces, std::span<const std::int64_t> counts, Codes kind, const at::Tensor& out) {
  expect(pieces.size() == counts.size() && pieces.size() <= kQuantizedPieces, "dequantize: up to four pieces");
  Dequantize all{.pieces = {}, .piece_count = 0, .out = out.data_ptr(), .type = type_of(out), .kind = kind};
  std::int64_t first = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const QuantizedBlocks& piece = pieces[i];
    const auto blocks = ceil_div(counts[i], kWeightBlock);
    const bool nested = piece.outer.defined();
    expect(holds(piece.codes, at::kByte, code_bytes(kind, counts[i])), "dequantize: a code for every weight");
    expect(holds(piece.scales, nested ? at::kByte : at::kFloat, blocks), "dequantize: a scale for every block");
    if (nested)
      expect(holds(piece.outer, at::kFloat, ceil_div(blocks, kScaleBlock)) && holds(piece.map, at::kFloat, 256),
             "dequantize: outer scales");
    all.pieces[all.piece_count++] = {.codes = piece.codes.const_data_ptr<std::uint8_t>(),
                                     .scales = nested ? nullptr : piece.scales.const_data_ptr<float>(),
                                     .scale_codes = nested ? piece.scales.const_data_ptr<std::uint8_t>() : nullptr,
                                     .outer = nested ? piece.outer.const_data_ptr<float>() : nullptr,
                                     .map = nested ? piece.map.const_data_ptr<float>() : nullptr,
                                     .offset = static_cast<float>(piece.offset),
                                     .first = first,
                                     .count = counts[i]};
    first += counts[i];
  }
  expect(out.is_contiguous() && out.numel() == first, "dequantize: the output holds all pieces");
  table_of(out).dequantize(all, stream_of(out));
}

}  // namespace lockstep::kernels
