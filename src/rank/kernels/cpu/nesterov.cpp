// Muon's momentum on a CPU.
#include "rank/kernels/cpu/ops.h"
#include "rank/kernels/rules/update.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

template <typename G, typename M>
void range(const Nesterov& a, const UpdateNumbers& n, std::int64_t begin, std::int64_t end) {
  auto* __restrict gradient = static_cast<G*>(a.gradient);
  auto* __restrict momentum = static_cast<M*>(a.momentum);
  by_type(a.out_type, [&]<typename O>(O) {
    auto* __restrict out = static_cast<O*>(a.out);
#pragma omp simd
    for (auto i = begin; i < end; ++i) {
      float m = load(momentum[i]), u = 0;
      nesterov_one(n, load(gradient[i]), m, u);
      if constexpr (sizeof(M) == 2)
        momentum[i].bits = stochastic_bf16(m, for_first(random_word(n, std::uint64_t(a.place + i))));
      else
        momentum[i] = m;
      store(out[i], u);
    }
  });
}

}  // namespace

void nesterov(const Nesterov& a, Stream) {
  by_type(a.gradient_type, [&]<typename G>(G) {
    parallel(a.count, 16384, [&](std::int64_t begin, std::int64_t end) {
      if (a.control->skip == 0) (a.momentum_type == Type::bf16 ? range<G, Bf16> : range<G, float>)(a, numbers_of(a), begin, end);
      if (a.zero_gradient) std::memset(static_cast<G*>(a.gradient) + begin, 0, (end - begin) * sizeof(G));
    });
  });
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
