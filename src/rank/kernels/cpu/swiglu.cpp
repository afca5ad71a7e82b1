// SwiGLU from one packed gate-up matrix on a CPU, forward and backward.
#include "rank/kernels/cpu/ops.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

template <typename T>
void forward_rows(const SwigluForward& a, std::int64_t begin, std::int64_t end) {
  for (auto row = begin; row < end; ++row) {
    const auto* gate = static_cast<const T*>(a.gate_up) + row * 2 * a.width;
    const auto* up = gate + a.width;
    auto* out = static_cast<T*>(a.out) + row * a.width;
#pragma omp simd
    for (std::int64_t i = 0; i < a.width; ++i) {
      const float g = load(gate[i]);
      store(out[i], g * sigmoid(g) * load(up[i]));
    }
  }
}

template <typename T, bool with_out>
void backward_rows(const SwigluBackward& a, std::int64_t begin, std::int64_t end) {
  for (auto row = begin; row < end; ++row) {
    const auto* gate = static_cast<const T*>(a.gate_up) + row * 2 * a.width;
    const auto* up = gate + a.width;
    const auto* dout = static_cast<const T*>(a.dout) + row * a.width;
    auto* dgate = static_cast<T*>(a.dgate_up) + row * 2 * a.width;
    auto* dup = dgate + a.width;
    auto* out = static_cast<T*>(a.out) + row * a.width;
#pragma omp simd
    for (std::int64_t i = 0; i < a.width; ++i) {
      const float g = load(gate[i]), u = load(up[i]), d = load(dout[i]);
      const float s = sigmoid(g);
      if constexpr (with_out) store(out[i], g * s * u);
      store(dup[i], d * g * s);
      store(dgate[i], d * u * s * (1.0f + g * (1.0f - s)));
    }
  }
}

}  // namespace

void swiglu_forward(const SwigluForward& a, Stream) {
  by_type(a.type, [&]<typename T>(T) {
    parallel(a.rows, grain_rows(2 * a.width), [&](std::int64_t begin, std::int64_t end) { forward_rows<T>(a, begin, end); });
  });
}

void swiglu_backward(const SwigluBackward& a, Stream) {
  by_type(a.type, [&]<typename T>(T) {
    parallel(a.rows, grain_rows(2 * a.width), [&](std::int64_t begin, std::int64_t end) {
      a.out ? backward_rows<T, true>(a, begin, end) : backward_rows<T, false>(a, begin, end);
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
