// Weights into NF4 or int8 codes and back on a CPU.
#include "rank/kernels/rules/nf4.h"

#include <algorithm>

#include "rank/kernels/cpu/ops.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr std::int64_t kGrainBlocks = 512;

std::int64_t blocks_of(std::int64_t count, std::int64_t block) { return (count + block - 1) / block; }

std::uint8_t nf4_code(float value) {
  int code = 0;
  for (const float bound : nf4_bounds) code += !(value <= bound);  // NaN: the last
  return std::uint8_t(code);
}

template <typename T>
void quantize_block(const QuantizeBlocks& a, std::int64_t block) {
  const auto first = block * kWeightBlock, count = std::min(kWeightBlock, a.count - first);
  float values[kWeightBlock] = {};
  float most = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = load(static_cast<const T*>(a.in)[first + i]);
    most = larger(most, std::fabs(values[i]));
  }
  if (a.kind == Codes::int8) {
    const Int8Scale scale(most);
    a.scales[block] = scale.step;
    for (std::int64_t i = 0; i < count; ++i) a.codes[first + i] = scale(values[i]);
    return;
  }
  const Nf4Scale scale(most, count == kWeightBlock);
  a.scales[block] = scale.most;
  for (std::int64_t i = 0; i < count; i += 2) {  // an odd count is filled with a zero
    const std::uint8_t high = nf4_code(scale(values[i])), low = nf4_code(i + 1 < count ? scale(values[i + 1]) : 0.0f);
    a.codes[(first + i) / 2] = std::uint8_t(high << 4 | low);
  }
}

float scale_of(const QuantizedPiece& piece, std::int64_t block) {
  if (piece.scales != nullptr) return piece.scales[block];
  return piece.map[piece.scale_codes[block]] * piece.outer[block / kScaleBlock] + piece.offset;
}

template <typename T>
void dequantize_block(const QuantizedPiece& piece, Codes kind, T* out, std::int64_t block) {
  const auto first = block * kWeightBlock, count = std::min(kWeightBlock, piece.count - first);
  const float scale = scale_of(piece, block);
  out += first;
  if (kind == Codes::int8) {
    const auto* codes = reinterpret_cast<const signed char*>(piece.codes) + first;
    for (std::int64_t i = 0; i < count; ++i) store(out[i], float(codes[i]) * scale);
    return;
  }
  float products[16];
  for (std::size_t i = 0; i < 16; ++i) products[i] = nf4_values[i] * scale;
  const std::uint8_t* codes = piece.codes + first / 2;
  for (std::int64_t i = 0; i + 1 < count; i += 2) {
    store(out[i], products[codes[i / 2] >> 4]);
    store(out[i + 1], products[codes[i / 2] & 15]);
  }
  if (count % 2 != 0) store(out[count - 1], products[codes[count / 2] >> 4]);
}

}  // namespace

void quantize_blocks(const QuantizeBlocks& a, Stream) {
  by_type(a.type, [&]<typename T>(T) {
    parallel(blocks_of(a.count, kWeightBlock), kGrainBlocks, [&](std::int64_t begin, std::int64_t end) {
      for (auto block = begin; block < end; ++block) quantize_block<T>(a, block);
    });
  });
}

void quantize_scales(const QuantizeScales& a, Stream) {
  for (std::int64_t first = 0; first < a.count; first += kScaleBlock) {
    const auto end = std::min(first + kScaleBlock, a.count);
    float most = 0;
    for (auto i = first; i < end; ++i) most = std::max(most, std::fabs(a.in[i] - a.offset));
    a.outer[first / kScaleBlock] = most;
    for (auto i = first; i < end; ++i) a.codes[i] = scale_code(a.map, a.in[i] - a.offset, most);
  }
}

void dequantize(const Dequantize& a, Stream) {
  by_type(a.type, [&]<typename T>(T) {
    for (int p = 0; p < a.piece_count; ++p) {
      const QuantizedPiece& piece = a.pieces[p];
      T* out = static_cast<T*>(a.out) + piece.first;
      parallel(blocks_of(piece.count, kWeightBlock), kGrainBlocks, [&](std::int64_t begin, std::int64_t end) {
        for (auto block = begin; block < end; ++block) dequantize_block<T>(piece, a.kind, out, block);
      });
    }
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
