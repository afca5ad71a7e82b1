// The table of CUDA kernels.
#include "rank/kernels/cuda/cuda.cuh"

namespace lockstep::kernels::cuda {

const Table& table() {
  static constexpr Table table{
      .partial_rows = kPartialRows,
      .rms_norm_forward = rms_norm_forward,
      .rms_norm_apply = rms_norm_apply,
      .rms_norm_backward = rms_norm_backward,
      .rope_forward = rope_forward,
      .rope_backward = rope_backward,
      .swiglu_forward = swiglu_forward,
      .swiglu_backward = swiglu_backward,
      .bias_backward = bias_backward,
      .embedding_forward = embedding_forward,
      .embedding_backward = embedding_backward,
      .cross_entropy = cross_entropy,
      .dropout = dropout,
      .random_normal = random_normal,
      .sum_of_squares = sum_of_squares,
      .finish_gradients = finish_gradients,
      .update = update,
      .adamw_8bit = adamw_8bit,
      .nesterov = nesterov,
      .quantize_blocks = quantize_blocks,
      .quantize_scales = quantize_scales,
      .dequantize = dequantize,
      .matmul = matmul,
      .gate_up_swiglu = gate_up_swiglu,
      .down_backward_swiglu = down_backward_swiglu,
  };
  return table;
}

}  // namespace lockstep::kernels::cuda
