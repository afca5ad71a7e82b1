// Residual add and RMSNorm on a CPU: one pass over a row while it is in the cache.
#include "rank/kernels/cpu/ops.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

template <typename T>
void forward_rows(const RmsNormForward& a, std::int64_t begin, std::int64_t end) {
  const auto* weight = static_cast<const T*>(a.weight);
  for (auto row = begin; row < end; ++row) {
    const auto* x = static_cast<const T*>(a.residual) + row * a.width;
    float squares = 0;
    if (a.delta) {
      const auto* residual = x;
      const auto* delta = static_cast<const T*>(a.delta) + row * a.width;
      auto* sum = static_cast<T*>(a.x_out) + row * a.width;
#pragma omp simd reduction(+ : squares)
      for (std::int64_t i = 0; i < a.width; ++i) {
        store(sum[i], load(residual[i]) + load(delta[i]));
        const float value = load(sum[i]);
        squares += value * value;
      }
      x = sum;
    } else {
#pragma omp simd reduction(+ : squares)
      for (std::int64_t i = 0; i < a.width; ++i) squares += load(x[i]) * load(x[i]);
    }
    const float rstd = 1.0f / std::sqrt(squares / float(a.width) + a.eps);
    a.rstd[row] = rstd;
    auto* out = static_cast<T*>(a.out) + row * a.width;
#pragma omp simd
    for (std::int64_t i = 0; i < a.width; ++i) store(out[i], load(x[i]) * rstd * load(weight[i]));
  }
}

template <typename T>
void apply_rows(const RmsNormApply& a, std::int64_t begin, std::int64_t end) {
  const auto* weight = static_cast<const T*>(a.weight);
  for (auto row = begin; row < end; ++row) {
    const auto* x = static_cast<const T*>(a.x) + row * a.width;
    auto* out = static_cast<T*>(a.out) + row * a.width;
    const float rstd = a.rstd[row];
#pragma omp simd
    for (std::int64_t i = 0; i < a.width; ++i) store(out[i], load(x[i]) * rstd * load(weight[i]));
  }
}

template <typename T>
void backward_rows(const RmsNormBackward& a, std::int64_t begin, std::int64_t end, float* __restrict dweight) {
  const auto* weight = static_cast<const T*>(a.weight);
  for (std::int64_t i = 0; i < a.width; ++i) dweight[i] = 0;
  for (auto row = begin; row < end; ++row) {
    const auto* x = static_cast<const T*>(a.x) + row * a.width;
    const auto* dout = static_cast<const T*>(a.dout) + row * a.width;
    auto* dx = static_cast<T*>(a.dx) + row * a.width;
    const float rstd = a.rstd[row];
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t i = 0; i < a.width; ++i) {
      const float scaled = load(dout[i]) * load(x[i]);
      dot += scaled * load(weight[i]);
      dweight[i] += scaled * rstd;
    }
    const float slope = dot * rstd * rstd * rstd / float(a.width);
    if (a.accumulate) {
#pragma omp simd
      for (std::int64_t i = 0; i < a.width; ++i) store(dx[i], load(dx[i]) + (load(dout[i]) * load(weight[i]) * rstd - load(x[i]) * slope));
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < a.width; ++i) store(dx[i], load(dout[i]) * load(weight[i]) * rstd - load(x[i]) * slope);
    }
  }
}

}  // namespace

void rms_norm_forward(const RmsNormForward& a, Stream) {
  by_type(a.type, [&]<typename T>(T) {
    parallel(a.rows, grain_rows(a.width), [&](std::int64_t begin, std::int64_t end) { forward_rows<T>(a, begin, end); });
  });
}

void rms_norm_apply(const RmsNormApply& a, Stream) {
  by_type(a.type, [&]<typename T>(T) {
    parallel(a.rows, grain_rows(a.width), [&](std::int64_t begin, std::int64_t end) { apply_rows<T>(a, begin, end); });
  });
}

void rms_norm_backward(const RmsNormBackward& a, Stream) {
  // The split into partial sums does not depend on the number of threads, so neither does the result.
  const std::int64_t slices = a.rows < kCpuPartialRows ? a.rows : kCpuPartialRows;
  by_type(a.type, [&]<typename T>(T) {
    parallel(slices, 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto s = begin; s < end; ++s) backward_rows<T>(a, a.rows * s / slices, a.rows * (s + 1) / slices, a.partials + s * a.width);
    });
  });
  if (a.dweight) add_partials(a.partials, slices, a.width, a.dweight, a.gradient_type);
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
