// SwiGLU's arithmetic, the same bits wherever it is done.
#pragma once

#include <type_traits>

namespace lockstep::kernels::cuda {

// For 16-bit numbers by the chip's own approximations, which are exact to far more than 16 bits.
template <typename T>
__device__ __forceinline__ float sigmoid(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return 1.0f / (1.0f + expf(-x));
  } else {
    return __fdividef(1.0f, 1.0f + __expf(-x));
  }
}

template <typename T>
__device__ __forceinline__ float swiglu(float gate, float up) {
  return gate * sigmoid<T>(gate) * up;
}

// gate and up become their gradients, from that of their product; returns the product.
template <typename T>
__device__ __forceinline__ float differentiate_swiglu(float& gate, float& up, float dout) {
  const float s = sigmoid<T>(gate), out = gate * s * up, dup = dout * gate * s;
  gate = dout * up * s * (1.0f + gate * (1.0f - s));
  up = dup;
  return out;
}

}  // namespace lockstep::kernels::cuda
