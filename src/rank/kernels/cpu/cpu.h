// What the CPU loops share: number types, a vectorizable exp, threads. Each op is compiled once per instruction set, in a
// namespace of that name, so nothing here may leak out of it (the linker would merge AVX-512 code into the plain build).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "rank/kernels/table.h"

#ifndef LOCKSTEP_ISA
#define LOCKSTEP_ISA plain
#endif

namespace lockstep::kernels {

// at::parallel_for behind a plain function: the loops themselves know nothing of LibTorch.
void parallel_ranges(std::int64_t count, std::int64_t grain, void* context, void (*body)(void*, std::int64_t, std::int64_t));

namespace LOCKSTEP_ISA {
namespace {

template <typename F>
[[maybe_unused]] void parallel(std::int64_t count, std::int64_t grain, F body) {
  parallel_ranges(count, grain, &body, [](void* f, std::int64_t begin, std::int64_t end) { (*static_cast<F*>(f))(begin, end); });
}

// Rows a thread should take at least, so that a hand-over costs little beside the work.
[[maybe_unused]] inline std::int64_t grain_rows(std::int64_t width) { return width < 32768 ? 32768 / (width > 0 ? width : 1) : 1; }

struct Bf16 {
  std::uint16_t bits;
};
struct Half {
  _Float16 value;
};

inline float load(const float& x) { return x; }
inline float load(const Bf16& x) {
  const std::uint32_t bits = std::uint32_t(x.bits) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline float load(const Half& x) { return float(x.value); }

inline void store(float& out, float value) { out = value; }
inline void store(Bf16& out, float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;  // to nearest, ties to even
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  out.bits = std::uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}
inline void store(Half& out, float value) { out.value = _Float16(value); }

// Value after a round trip through T: what a later kernel will read back.
template <typename T>
inline float rounded(float value) {
  T stored;
  store(stored, value);
  return load(stored);
}

template <typename F>
[[maybe_unused]] void by_type(Type type, F body) {
  switch (type) {
    case Type::f32: return body(float{});
    case Type::bf16: return body(Bf16{});
    case Type::f16: return body(Half{});
  }
}

// e^x within 2 units in the last place, in operations that vectorize; NaN stays NaN, results below 1e-38 become 0.
inline float exp_of(float x) {
  const float clamped = x < -87.3f ? -87.3f : (x > 88.3f ? 88.3f : x);
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const float shifted = clamped * 1.44269504f + magic;
  const float n = shifted - magic;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.3888889e-3f;
  p = p * r + 8.3333333e-3f;
  p = p * r + 4.1666667e-2f;
  p = p * r + 1.6666667e-1f;
  p = p * r + 5.0e-1f;
  p = p * r * r + r + 1.0f;
  std::int32_t exponent;
  std::memcpy(&exponent, &shifted, 4);
  const std::int32_t bits = (exponent + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, 4);
  return x < -87.3f ? 0.0f : p * scale;
}

inline float sigmoid(float x) { return 1.0f / (1.0f + exp_of(-x)); }

}  // namespace
}  // namespace LOCKSTEP_ISA
}  // namespace lockstep::kernels
