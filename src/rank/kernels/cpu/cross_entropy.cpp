// Cross-entropy of a chunk of logits on a CPU; the logits become their own gradient.
#include "rank/kernels/cpu/ops.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

// Of equal logits the first counts.
template <typename T>
bool is_likeliest(const T* logits, std::int64_t target, float top) {
  if (!(load(logits[target]) >= top)) return false;
  bool earlier = false;
  for (std::int64_t i = 0; i < target; ++i) earlier |= load(logits[i]) >= top;
  return !earlier;
}

// A sum of 200,000 exponentials by one f32 a lane loses 2e-5 of itself; by blocks it loses what one rounding costs.
constexpr std::int64_t kBlock = 2048;

template <typename F>
float sum_by_blocks(std::int64_t count, F value) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t end = begin + kBlock < count ? begin + kBlock : count;
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (std::int64_t i = begin; i < end; ++i) part += value(i);
    sum += part;
  }
  return static_cast<float>(sum);
}

template <typename T>
void rows_of(const CrossEntropy& a, std::int64_t begin, std::int64_t end) {
  for (auto row = begin; row < end; ++row) {
    auto* logits = static_cast<T*>(a.logits) + row * a.vocab;
    const auto target = a.targets[row];
    if (target < 0) {  // -100: not trained
      a.losses[row] = 0;
      if (a.correct) a.correct[row] = 0;
      if (a.gradient) std::memset(static_cast<void*>(logits), 0, a.vocab * sizeof(T));
      continue;
    }
    float top = load(logits[0]);
#pragma omp simd reduction(max : top)
    for (std::int64_t i = 0; i < a.vocab; ++i) top = load(logits[i]) > top ? load(logits[i]) : top;
    if (a.correct) a.correct[row] = is_likeliest(logits, target, top) ? 1 : 0;
    float sum = 0;
    const float at_target = load(logits[target]);
    const auto exponential = [&](std::int64_t i) { return exp_of(load(logits[i]) - top); };
    if (!a.gradient) {
      sum = sum_by_blocks(a.vocab, exponential);
    } else if constexpr (sizeof(T) == 4) {  // f32 has room to keep the exponentials where the logits were
      sum = sum_by_blocks(a.vocab, [&](std::int64_t i) {
        const float e = exponential(i);
        store(logits[i], e);
        return e;
      });
      const float factor = *a.scale / sum;
#pragma omp simd
      for (std::int64_t i = 0; i < a.vocab; ++i) store(logits[i], load(logits[i]) * factor);
    } else {
      sum = sum_by_blocks(a.vocab, exponential);
      const float factor = *a.scale / sum;
#pragma omp simd
      for (std::int64_t i = 0; i < a.vocab; ++i) store(logits[i], exponential(i) * factor);
    }
    a.losses[row] = std::log(sum) + top - at_target;
    if (a.gradient) {
      const float p = exp_of(at_target - top) / sum;
      store(logits[target], *a.scale * (p - 1.0f));
    }
  }
}

}  // namespace

void cross_entropy(const CrossEntropy& a, Stream) {
  by_type(a.type, [&]<typename T>(T) {
    parallel(a.rows, grain_rows(a.vocab), [&](std::int64_t begin, std::int64_t end) { rows_of<T>(a, begin, end); });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
