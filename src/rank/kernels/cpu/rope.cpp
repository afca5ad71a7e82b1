// Rotary embedding of packed q and k on a CPU, with the optional norm of each head, and the way back.
#include "rank/kernels/cpu/ops.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

constexpr std::int64_t kMaxHeadDim = 512;

template <typename T>
float head_rstd(const T* x, std::int64_t width, float eps) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < width; ++i) squares += load(x[i]) * load(x[i]);
  return 1.0f / std::sqrt(squares / float(width) + eps);
}

template <typename T>
void rotate_head(const T* in, T* out, const T* weight, const float* cosine, const float* sine, std::int64_t half, float eps) {
  if (weight) {
    const float rstd = head_rstd(in, 2 * half, eps);
#pragma omp simd
    for (std::int64_t i = 0; i < half; ++i) {
      const float a = load(in[i]) * rstd * load(weight[i]), b = load(in[i + half]) * rstd * load(weight[i + half]);
      store(out[i], a * cosine[i] - b * sine[i]);
      store(out[i + half], b * cosine[i] + a * sine[i]);
    }
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < half; ++i) {
      const float a = load(in[i]), b = load(in[i + half]);
      store(out[i], a * cosine[i] - b * sine[i]);
      store(out[i + half], b * cosine[i] + a * sine[i]);
    }
  }
}

template <typename T>
void forward_rows(const RopeForward& a, std::int64_t begin, std::int64_t end) {
  const auto half = a.head_dim / 2;
  for (auto row = begin; row < end; ++row) {
    const auto* in = static_cast<const T*>(a.in) + row * a.in_stride;
    auto* out = static_cast<T*>(a.out) + row * a.out_stride;
    const auto position = a.positions ? std::int64_t(a.positions[row]) : row % a.time;
    const auto *cosine = a.cosine + position * half, *sine = a.sine + position * half;
    for (std::int64_t head = 0; head < a.heads + a.kv_heads; ++head) {
      const auto* weight = static_cast<const T*>(head < a.heads ? a.q_weight : a.k_weight);
      rotate_head(in + head * a.head_dim, out + head * a.head_dim, weight, cosine, sine, half, a.eps);
    }
  }
}

// Sums `count` neighboring heads of one row into f32.
template <typename T>
void gather(const HeadGradient& from, std::int64_t batch, std::int64_t time, std::int64_t head, std::int64_t count, std::int64_t width,
            float* __restrict sum) {
  const auto* data = static_cast<const T*>(from.data) + batch * from.batch_stride + time * from.time_stride + head * from.head_stride;
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) sum[i] = load(data[i]);
  for (std::int64_t n = 1; n < count; ++n) {
    data += from.head_stride;
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) sum[i] += load(data[i]);
  }
}

void rotate_back(float* __restrict x, const float* cosine, const float* sine, std::int64_t half) {
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cosine[i] + b * sine[i];
    x[i + half] = b * cosine[i] - a * sine[i];
  }
}

// gradient: through the norm, in place; dweight: adds.
template <typename T>
void norm_back(const T* x, const T* weight, float* __restrict gradient, float* __restrict dweight, std::int64_t width, float eps) {
  const float rstd = head_rstd(x, width, eps);
  float dot = 0;
#pragma omp simd reduction(+ : dot)
  for (std::int64_t i = 0; i < width; ++i) {
    const float scaled = gradient[i] * load(x[i]);
    dot += scaled * load(weight[i]);
    dweight[i] += scaled * rstd;
  }
  const float slope = dot * rstd * rstd * rstd / float(width);
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) gradient[i] = gradient[i] * load(weight[i]) * rstd - load(x[i]) * slope;
}

template <typename T>
void backward_rows(const RopeBackward& a, std::int64_t begin, std::int64_t end, float* dweights) {
  const auto half = a.head_dim / 2;
  const auto row_width = (a.heads + 2 * a.kv_heads) * a.head_dim;
  float sum[kMaxHeadDim];
  for (auto row = begin; row < end; ++row) {
    const auto batch = row / a.time, time = row % a.time;
    const auto position = a.positions ? std::int64_t(a.positions[row]) : time;
    const auto *cosine = a.cosine + position * half, *sine = a.sine + position * half;
    auto* out = static_cast<T*>(a.dqkv) + row * row_width;
    const auto* raw = static_cast<const T*>(a.qkv) + row * row_width;
    const auto emit = [&] {
#pragma omp simd
      for (std::int64_t i = 0; i < a.head_dim; ++i) store(out[i], sum[i]);
      out += a.head_dim;
      raw += a.head_dim;
    };
    for (std::int64_t head = 0; head < a.heads; ++head) {
      gather<T>(a.dq, batch, time, head, 1, a.head_dim, sum);
      rotate_back(sum, cosine, sine, half);
      if (a.q_weight) norm_back(raw, static_cast<const T*>(a.q_weight), sum, dweights, a.head_dim, a.eps);
      emit();
    }
    for (std::int64_t head = 0; head < a.kv_heads; ++head) {
      gather<T>(a.dk, batch, time, head * a.kv_repeat, a.kv_repeat, a.head_dim, sum);
      rotate_back(sum, cosine, sine, half);
      if (a.k_weight) norm_back(raw, static_cast<const T*>(a.k_weight), sum, dweights + a.head_dim, a.head_dim, a.eps);
      emit();
    }
    for (std::int64_t head = 0; head < a.kv_heads; ++head) {
      gather<T>(a.dv, batch, time, head * a.kv_repeat, a.kv_repeat, a.head_dim, sum);
      emit();
    }
  }
}

}  // namespace

void rope_forward(const RopeForward& a, Stream) {
  by_type(a.type, [&]<typename T>(T) {
    const auto grain = grain_rows((a.heads + a.kv_heads) * a.head_dim);
    parallel(a.rows, grain, [&](std::int64_t begin, std::int64_t end) { forward_rows<T>(a, begin, end); });
  });
}

void rope_backward(const RopeBackward& a, Stream) {
  const std::int64_t slices = a.rows < kCpuPartialRows ? a.rows : kCpuPartialRows;
  by_type(a.type, [&]<typename T>(T) {
    parallel(slices, 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto s = begin; s < end; ++s) {
        float* dweights = a.q_weight ? a.partials + s * 2 * a.head_dim : nullptr;
        for (std::int64_t i = 0; dweights && i < 2 * a.head_dim; ++i) dweights[i] = 0;
        backward_rows<T>(a, a.rows * s / slices, a.rows * (s + 1) / slices, dweights);
      }
    });
  });
  if (a.dq_weight) {
    add_partials(a.partials, slices, a.head_dim, a.dq_weight, a.gradient_type, 2 * a.head_dim);
    add_partials(a.partials + a.head_dim, slices, a.head_dim, a.dk_weight, a.gradient_type, 2 * a.head_dim);
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
