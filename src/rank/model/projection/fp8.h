// A projection's products in 8 bits: e4m3 for weights and activations, e5m2 for gradients, each tensor with the scale of this very moment.
#pragma once

#include <ATen/core/Tensor.h>

#include "config/run_config.h"
#include "rank/kernels/fp8.h"
#include "rank/model/layout.h"

namespace lockstep::model {

// The scales of one projection's two sides. Forward measures them, and backward of the same micro-step takes them again: input and
// weights are the same then.
struct Fp8Scales {
  at::Tensor input, weight;
};

// Owns the 8-bit copies, which one product at a time needs: weights are cast anew for each, because keeping both of their copies would
// cost as much memory as the weights. One thread, the device's current stream; no scale is ever seen by the host.
// Every product answers false, with nothing done, where its sizes are not multiples of 16 or its numbers are not bf16.
class Fp8Products {
 public:
  // table: whose kernels, which must outlive it.
  Fp8Products(const at::Device& device, const kernels::Fp8Table& table);

  // Room for the products of `rows` tokens at once: growing step by step would leave holes in the memory. Transposed gradients, which
  // only trained weights need, find theirs when they come.
  void reserve(const layout::LargestMatrix& largest, std::int64_t rows);

  // out = x weight^T (+ bias) (+ out). Writes the scales.
  bool forward(const at::Tensor& out, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, kernels::Into into,
               Fp8Scales& scales);
  // Before the products of another gradient: it is cast by the first of them, and once for both.
  void begin_backward() { cast_ = false; }
  // dx = dout weight (+ dx). paired: the same dout also goes into backward_weight, before or after.
  bool backward_input(const at::Tensor& dx, const at::Tensor& dout, const at::Tensor& weight, kernels::Into into, const Fp8Scales& scales,
                      bool paired);
  // dweight += dout^T x. Always one of a pair.
  bool backward_weight(const at::Tensor& dweight, const at::Tensor& dout, const at::Tensor& x, const Fp8Scales& scales);

  const kernels::Fp8Table& table() const { return *table_; }

 private:
  void forget_gradient();
  void cast_gradient(const at::Tensor& dout, bool paired);

  // One side of a product lies in gradient_memory_ or gradient_t_memory_, the other in other_memory_; forward has its input where
  // gradients are later. Bytes, as many as the largest matrix took.
  at::Tensor gradient_memory_, gradient_t_memory_, other_memory_;
  const kernels::Fp8Table* table_;
  at::Tensor gradient_scale_;
  kernels::Fp8Matrix gradient_, gradient_t_;
  bool cast_ = false;  // gradient_ and gradient_t_ are of the gradient that was begun
};

}  // namespace lockstep::model
