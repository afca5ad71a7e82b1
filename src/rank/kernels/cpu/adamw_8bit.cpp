// AdamW with 8-bit moments on a CPU: a block of 256 numbers at a time.
#include "rank/kernels/cpu/ops.h"
#include "rank/kernels/rules/update.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

float largest(const float* values, std::int64_t count) {
  float most = 0;
#pragma omp simd reduction(max : most)
  for (std::int64_t i = 0; i < count; ++i) most = std::fabs(values[i]) > most ? std::fabs(values[i]) : most;
  return most;
}

void encode(const float* values, std::int64_t count, const float* map, std::uint8_t* codes, float* scale) {
  *scale = largest(values, count);
  const float inverse = *scale > 0 ? 1.0f / *scale : 0.0f;
  for (std::int64_t i = 0; i < count; ++i) codes[i] = nearest_code(map, values[i], inverse);
}

template <typename G, typename P>
void block(const AdamW8bit& a, const UpdateNumbers& n, std::int64_t index) {
  const auto begin = index * kQuantBlock, count = a.count - begin < kQuantBlock ? a.count - begin : kQuantBlock;
  float first[kQuantBlock], second[kQuantBlock];
  auto* gradient = static_cast<G*>(a.gradient) + begin;
  auto* exact = static_cast<P*>(a.exact) + begin;
  auto* m_codes = a.first_codes + begin;
  auto* v_codes = a.second_codes + begin;
  for (std::int64_t i = 0; i < count; ++i) {
    first[i] = a.first_map[m_codes[i]] * a.first_scale[index];
    second[i] = a.second_map[v_codes[i]] * a.second_scale[index];
    float p = load(exact[i]);
    update_one<Rule::adamw>(n, load(gradient[i]), p, first[i], second[i]);
    if constexpr (sizeof(P) == 2) {
      exact[i].bits = stochastic_bf16(p, for_weight(random_word(n, std::uint64_t(a.place + begin + i))));
    } else {
      exact[i] = p;
      if (a.weights != nullptr && a.weight_type == Type::bf16) store(static_cast<Bf16*>(a.weights)[begin + i], p);
      if (a.weights != nullptr && a.weight_type == Type::f16) store(static_cast<Half*>(a.weights)[begin + i], p);
    }
  }
  encode(first, count, a.first_map, m_codes, a.first_scale + index);
  encode(second, count, a.second_map, v_codes, a.second_scale + index);
}

}  // namespace

void adamw_8bit(const AdamW8bit& a, Stream) {
  const auto blocks = (a.count + kQuantBlock - 1) / kQuantBlock;
  by_type(a.gradient_type, [&]<typename G>(G) {
    parallel(blocks, 32, [&](std::int64_t begin, std::int64_t end) {
      if (a.control->skip == 0) {
        const auto n = numbers_of(a);
        for (auto i = begin; i < end; ++i) (a.exact_type == Type::bf16 ? block<G, Bf16> : block<G, float>)(a, n, i);
      }
      if (!a.zero_gradient) return;
      const auto from = begin * kQuantBlock, to = end * kQuantBlock < a.count ? end * kQuantBlock : a.count;
      std::memset(static_cast<G*>(a.gradient) + from, 0, (to - from) * sizeof(G));
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
