// The arithmetic of an update, number by number, and stochastic rounding: the same bits on a CPU and on a GPU.
// Every product that meets a sum is an explicit fused multiply-add, so no compiler flag can make two devices differ.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/hash/mix.h"
#include "rank/kernels/rules/both.h"
#include "rank/kernels/table.h"

namespace lockstep::kernels {
namespace {

// What every number of a buffer is updated with: worked out once a call, in f64.
struct UpdateNumbers {
  float factor, beta1, rest1, beta2, rest2, rate, root, epsilon, keep, decay;
  std::uint32_t key0, key1;
};

// base^exponent for whole exponents in multiplications alone: no library's pow is part of the result.
LOCKSTEP_BOTH inline double whole_power(double base, double exponent) {
  double result = 1;
  for (auto left = std::uint64_t(exponent); left > 0; left >>= 1) {
    if (left & 1u) result *= base;
    base *= base;
  }
  return result;
}

// The key of one update's random bits.
LOCKSTEP_BOTH inline std::uint64_t key_at(std::uint64_t key, const Control& control) {
  return base::mix(key + 0x9e3779b97f4a7c15ull * (std::uint64_t(control.updates) - 1));
}

LOCKSTEP_BOTH inline UpdateNumbers numbers_of(const Update& a) {
  const double updates = a.control->updates;
  const double rest1 = fma(whole_power(a.beta1, updates), -1.0, 1.0), rest2 = fma(whole_power(a.beta2, updates), -1.0, 1.0);
  const std::uint64_t key = key_at(a.key, *a.control);
  const bool corrects = a.rule == Rule::adamw;
  return {.factor = a.rule == Rule::apply ? 1.0f : float(a.control->factor),
          .beta1 = float(a.beta1),
          .rest1 = float(1 - a.beta1),
          .beta2 = float(a.beta2),
          .rest2 = float(1 - a.beta2),
          .rate = float(corrects ? a.rate / rest1 : a.rate),
          .root = float(corrects ? 1 / sqrt(rest2) : 1),
          .epsilon = float(a.epsilon),
          .keep = float(fma(-a.rate, a.decay, 1.0)),
          .decay = float(a.decay),
          .key0 = std::uint32_t(key),
          .key1 = std::uint32_t(key >> 32)};
}

LOCKSTEP_BOTH inline UpdateNumbers numbers_of(const AdamW8bit& a) {
  return numbers_of(Update{.rate = a.rate,
                           .beta1 = a.beta1,
                           .beta2 = a.beta2,
                           .epsilon = a.epsilon,
                           .decay = a.decay,
                           .key = a.key,
                           .control = a.control,
                           .rule = Rule::adamw});
}

LOCKSTEP_BOTH inline UpdateNumbers numbers_of(const Nesterov& a) {
  return numbers_of(
      Update{.rate = 0, .beta1 = a.beta, .beta2 = 0, .epsilon = 0, .decay = 0, .key = a.key, .control = a.control, .rule = Rule::lion});
}

// 32 random bits for the number at this place of its unit.
LOCKSTEP_BOTH inline std::uint32_t random_word(const UpdateNumbers& n, std::uint64_t place) {
  std::uint32_t x = std::uint32_t(place) ^ n.key0;
  x ^= x >> 16;
  x *= 0x21f0aaadu;
  x ^= n.key1 + std::uint32_t(place >> 32) * 0x9e3779b1u;
  x ^= x >> 15;
  x *= 0xd35a2d97u;
  return x ^ (x >> 15);
}

// One word serves the three roundings of a number: its halves, and the upper half of a multiple of it.
LOCKSTEP_BOTH inline std::uint32_t for_weight(std::uint32_t word) { return word & 0xffffu; }
LOCKSTEP_BOTH inline std::uint32_t for_first(std::uint32_t word) { return word >> 16; }
LOCKSTEP_BOTH inline std::uint32_t for_second(std::uint32_t word) { return (word * 0x9e3779b1u) >> 16; }

// bf16 bits: up with the probability of the part that is cut off, so the expectation is the value itself. Zero stays zero.
LOCKSTEP_BOTH inline std::uint16_t stochastic_bf16(float value, std::uint32_t sixteen_bits) {
  std::uint32_t bits;
  memcpy(&bits, &value, 4);
  return std::uint16_t(value == value ? (bits + sixteen_bits) >> 16 : 0x7fc0u);
}

// One number's update. g: the gradient as stored; p: the weight; m, v: the rule's states.
template <Rule rule>
LOCKSTEP_BOTH inline void update_one(const UpdateNumbers& n, float g, float& p, float& m, float& v) {
  if constexpr (rule == Rule::apply) {
    p = fmaf(p, n.keep, -(n.rate * g));
  } else {
    g *= n.factor;
    if constexpr (rule == Rule::adamw) {
      m = fmaf(g, n.rest1, m * n.beta1);
      v = fmaf(g * g, n.rest2, v * n.beta2);
      p = fmaf(p, n.keep, -(n.rate * m / fmaf(sqrtf(v), n.root, n.epsilon)));
    } else if constexpr (rule == Rule::lion) {
      const float c = fmaf(g, n.rest1, m * n.beta1);
      m = fmaf(g, n.rest2, m * n.beta2);
      p = fmaf(p, n.keep, c > 0 ? -n.rate : (c < 0 ? n.rate : 0.0f));
    } else {  // sgd: decay is part of the gradient, as torch.optim.SGD has it
      m = fmaf(m, n.beta1, fmaf(p, n.decay, g));
      p = fmaf(-n.rate, m, p);
    }
  }
}

LOCKSTEP_BOTH inline void nesterov_one(const UpdateNumbers& n, float g, float& momentum, float& out) {
  g *= n.factor;
  momentum = fmaf(g, n.rest1, momentum * n.beta1);
  out = fmaf(momentum, n.beta1, g * n.rest1);
}

// The code whose value is nearest to x / scale, the lower one of two that are equally near: bitsandbytes' blockwise quantization.
// map: 256 numbers, ascending. `inverse`: 1 / scale.
LOCKSTEP_BOTH inline std::uint8_t nearest_code(const float* map, float x, float inverse) {
  const float scaled = x * inverse;
  const float wanted = scaled > 1.0f ? 1.0f : (scaled < -1.0f ? -1.0f : scaled);
  int below = 0;  // the last code whose value is not above `wanted`, or 0
  for (int jump = 128; jump > 0; jump /= 2)
    if (map[below + jump] <= wanted) below += jump;
  const int above = below < 255 ? below + 1 : 255;
  return std::uint8_t(fabsf(map[above] - wanted) < fabsf(wanted - map[below]) ? above : below);
}

template <Rule rule>
inline constexpr int kStates = rule == Rule::adamw ? 2 : (rule == Rule::apply ? 0 : 1);

}  // namespace
}  // namespace lockstep::kernels
