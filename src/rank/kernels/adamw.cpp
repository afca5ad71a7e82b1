// AdamW on a CPU: one pass over the flat buffers of a unit.
#include "rank/kernels/cpu_ops.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

struct Numbers {
  float factor, beta1, beta2, step, root, epsilon, keep;
};

template <typename G, typename W, bool with_weights, bool zero>
void range(const AdamW& a, const Numbers& n, std::int64_t begin, std::int64_t end) {
  auto* __restrict gradient = static_cast<G*>(a.gradient);
  auto* __restrict weights = static_cast<W*>(a.weights);
  float* __restrict master = a.master;
  float* __restrict exp_avg = a.exp_avg;
  float* __restrict exp_avg_sq = a.exp_avg_sq;
#pragma omp simd
  for (auto i = begin; i < end; ++i) {
    const float g = load(gradient[i]) * n.factor;
    const float m = exp_avg[i] + (g - exp_avg[i]) * (1.0f - n.beta1);
    const float v = exp_avg_sq[i] * n.beta2 + g * g * (1.0f - n.beta2);
    const float p = master[i] * n.keep - n.step * m / (std::sqrt(v) * n.root + n.epsilon);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    master[i] = p;
    if constexpr (with_weights) store(weights[i], p);
    if constexpr (zero) store(gradient[i], 0.0f);
  }
}

}  // namespace

void adamw(const AdamW& a, Stream) {
  constexpr std::int64_t grain = 16384;
  if (a.control->skip != 0) {
    if (!a.zero_gradient) return;
    by_type(a.gradient_type, [&]<typename G>(G) {
      parallel(a.count, grain, [&](std::int64_t begin, std::int64_t end) {
        std::memset(static_cast<G*>(a.gradient) + begin, 0, (end - begin) * sizeof(G));
      });
    });
    return;
  }
  Numbers n{.factor = float(a.control->factor),
            .beta1 = float(a.beta1),
            .beta2 = float(a.beta2),
            .step = float(a.learning_rate / (1 - std::pow(a.beta1, a.control->updates))),
            .root = float(1 / std::sqrt(1 - std::pow(a.beta2, a.control->updates))),
            .epsilon = float(a.epsilon),
            .keep = 1};
  Numbers decayed = n;
  decayed.keep = float(1 - a.learning_rate * a.weight_decay);
  by_type(a.gradient_type, [&]<typename G>(G) {
    by_type(a.weight_type, [&]<typename W>(W) {
      const auto pick = a.weights ? (a.zero_gradient ? range<G, W, true, true> : range<G, W, true, false>)
                                  : (a.zero_gradient ? range<G, W, false, true> : range<G, W, false, false>);
      parallel(a.count, grain, [&](std::int64_t begin, std::int64_t end) {
        const auto border = a.decayed < begin ? begin : (a.decayed > end ? end : a.decayed);
        pick(a, decayed, begin, border);
        pick(a, n, border, end);
      });
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
