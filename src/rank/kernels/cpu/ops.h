// The CPU's kernels of one instruction set, and the column sums that several of them end with.
#pragma once

#include "rank/kernels/cpu/cpu.h"

namespace lockstep::kernels {

inline constexpr int kCpuPartialRows = 16;

namespace LOCKSTEP_ISA {

void rms_norm_forward(const RmsNormForward&, Stream);
void rms_norm_apply(const RmsNormApply&, Stream);
void rms_norm_backward(const RmsNormBackward&, Stream);
void rope_forward(const RopeForward&, Stream);
void rope_backward(const RopeBackward&, Stream);
void swiglu_forward(const SwigluForward&, Stream);
void swiglu_backward(const SwigluBackward&, Stream);
void bias_backward(const BiasBackward&, Stream);
void embedding_forward(const EmbeddingForward&, Stream);
void embedding_backward(const EmbeddingBackward&, Stream);
void cross_entropy(const CrossEntropy&, Stream);
void dropout(const Dropout&, Stream);
void random_normal(const RandomNormal&, Stream);
void sum_of_squares(const SumOfSquares&, Stream);
void finish_gradients(const FinishGradients&, Stream);
void update(const Update&, Stream);
void adamw_8bit(const AdamW8bit&, Stream);
void nesterov(const Nesterov&, Stream);
void quantize_blocks(const QuantizeBlocks&, Stream);
void quantize_scales(const QuantizeScales&, Stream);
void dequantize(const Dequantize&, Stream);
const Table& table();

namespace {

// target += sum over the slices, in f32.
[[maybe_unused]] void add_partials(const float* partials, std::int64_t slices, std::int64_t width, void* target, Type type,
                                   std::int64_t stride = 0) {
  if (stride == 0) stride = width;
  by_type(type, [&]<typename T>(T) {
    auto* out = static_cast<T*>(target);
    for (std::int64_t i = 0; i < width; ++i) {
      float sum = 0;
      for (std::int64_t s = 0; s < slices; ++s) sum += partials[s * stride + i];
      store(out[i], load(out[i]) + sum);
    }
  });
}

}  // namespace
}  // namespace LOCKSTEP_ISA
}  // namespace lockstep::kernels
