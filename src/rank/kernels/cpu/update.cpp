// Updates on a CPU: one pass over flat buffers for AdamW, Lion, SGD, and for updates that are made elsewhere.
#include "rank/kernels/rules/update.h"

#include "rank/kernels/cpu/ops.h"

namespace lockstep::kernels::LOCKSTEP_ISA {

namespace {

// f32 is stored as it is, bf16 is rounded stochastically.
inline void settle(float& out, float value, std::uint32_t) { out = value; }
inline void settle(Bf16& out, float value, std::uint32_t bits) { out.bits = stochastic_bf16(value, bits); }

template <Rule rule, typename G, typename P, typename S, typename W, bool copies, bool zero>
void range(const Update& a, const UpdateNumbers& n, std::int64_t begin, std::int64_t end) {
  auto* __restrict gradient = static_cast<G*>(a.gradient);
  auto* __restrict exact = static_cast<P*>(a.exact);
  auto* __restrict weights = static_cast<W*>(a.weights);
  auto* __restrict first = static_cast<S*>(a.first);
  auto* __restrict second = static_cast<S*>(a.second);
#pragma omp simd
  for (auto i = begin; i < end; ++i) {
    float p = load(exact[i]), m = 0, v = 0;
    if constexpr (kStates<rule> > 0) m = load(first[i]);
    if constexpr (kStates<rule> > 1) v = load(second[i]);
    update_one<rule>(n, load(gradient[i]), p, m, v);
    const std::uint32_t word = random_word(n, std::uint64_t(a.place + i));  // dead code where nothing is rounded
    settle(exact[i], p, for_weight(word));
    if constexpr (kStates<rule> > 0) settle(first[i], m, for_first(word));
    if constexpr (kStates<rule> > 1) settle(second[i], v, for_second(word));
    if constexpr (copies) store(weights[i], p);
    if constexpr (zero) store(gradient[i], 0.0f);
  }
}

constexpr std::int64_t kGrain = 16384;

template <Rule rule, typename G, typename P, typename S, typename W, bool copies>
void run(const Update& a) {
  const auto n = numbers_of(a);
  parallel(a.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    (a.zero_gradient ? range<rule, G, P, S, W, copies, true> : range<rule, G, P, S, W, copies, false>)(a, n, begin, end);
  });
}

template <Rule rule>
void by_storage(const Update& a) {
  by_type(a.gradient_type, [&]<typename G>(G) {
    if (a.exact_type == Type::bf16) {
      if (a.state_type == Type::bf16) return run<rule, G, Bf16, Bf16, Bf16, false>(a);
      return run<rule, G, Bf16, float, Bf16, false>(a);
    }
    if (a.weights == nullptr) return run<rule, G, float, float, float, false>(a);
    if (a.weight_type == Type::bf16) return run<rule, G, float, float, Bf16, true>(a);
    return run<rule, G, float, float, Half, true>(a);
  });
}

void clear_gradient(const Update& a) {
  by_type(a.gradient_type, [&]<typename G>(G) {
    parallel(a.count, kGrain,
             [&](std::int64_t begin, std::int64_t end) { std::memset(static_cast<G*>(a.gradient) + begin, 0, (end - begin) * sizeof(G)); });
  });
}

}  // namespace

void update(const Update& a, Stream) {
  if (a.control->skip != 0) {
    if (a.zero_gradient) clear_gradient(a);
    return;
  }
  switch (a.rule) {
    case Rule::adamw: return by_storage<Rule::adamw>(a);
    case Rule::lion: return by_storage<Rule::lion>(a);
    case Rule::sgd: return by_storage<Rule::sgd>(a);
    case Rule::apply: return by_storage<Rule::apply>(a);
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA
