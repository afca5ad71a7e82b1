// The rules of blockwise quantization, the same few lines on a CPU and inside a CUDA kernel. They give the bits that bitsandbytes gives
// on a CPU, down to how it divides in a short last block and rounds scales through 65,536 bins.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "rank/kernels/rules/both.h"

namespace lockstep::kernels {
namespace {  // each instruction set compiles its own

// Quantiles of a normal distribution, with an exact zero (QLoRA, appendix E).
constexpr std::array<float, 16> nf4_values{-1.0f,
                                           -0.6961928009986877f,
                                           -0.5250730514526367f,
                                           -0.39491748809814453f,
                                           -0.28444138169288635f,
                                           -0.18477343022823334f,
                                           -0.09105003625154495f,
                                           0.0f,
                                           0.07958029955625534f,
                                           0.16093020141124725f,
                                           0.24611230194568634f,
                                           0.33791524171829224f,
                                           0.44070982933044434f,
                                           0.5626170039176941f,
                                           0.7229568362236023f,
                                           1.0f};
// A value on a bound takes the lower code.
constexpr std::array<float, 15> nf4_bounds = [] {
  std::array<float, 15> bounds{};
  for (std::size_t i = 0; i < bounds.size(); ++i) bounds[i] = (nf4_values[i] + nf4_values[i + 1]) / 2;
  return bounds;
}();

// The larger magnitude; NaN stays.
[[maybe_unused]] LOCKSTEP_BOTH inline float larger(float most, float magnitude) {
  return magnitude > most || magnitude != magnitude ? magnitude : most;
}

[[maybe_unused]] LOCKSTEP_BOTH inline float clamped(float value) { return value < -1.0f ? -1.0f : (value > 1.0f ? 1.0f : value); }

// What a block's values are brought into [-1, 1] with. bitsandbytes multiplies in whole blocks and divides in a short last one.
struct Nf4Scale {
  float most, factor;
  bool whole;
  LOCKSTEP_BOTH Nf4Scale(float largest, bool is_whole) : whole(is_whole) {
    const float positive = largest < 1e-38f ? 1e-38f : largest;
    most = whole ? largest : positive;
    factor = whole ? 1.0f / positive : positive;
  }
  LOCKSTEP_BOTH float operator()(float value) const { return clamped(whole ? value * factor : value / factor); }
};

// int8: the scale is what one step is worth. Blocks below 1e-30 are zeros.
struct Int8Scale {
  float step, factor;
  LOCKSTEP_BOTH explicit Int8Scale(float largest) : step(largest < 1e-30f ? 0.0f : largest / 127.0f), factor(0) {
    if (step > 0) factor = 127.0f / largest;
  }
  LOCKSTEP_BOTH std::uint8_t operator()(float value) const {
    const float steps = rintf(value * factor);
    if (!(steps >= -127.0f)) return std::uint8_t(steps == steps ? -127 : 0);
    return std::uint8_t(static_cast<signed char>(steps > 127.0f ? 127.0f : steps));
  }
};

// Where in [-1, 1] a scale stands after rounding to one of 65,536 bins.
[[maybe_unused]] LOCKSTEP_BOTH inline float binned(float value) {
  const int bin = static_cast<int>(fmaf((clamped(value) + 1.0f) * 0.5f, 65535.0f, 0.5f));
  return static_cast<float>(2 * bin) / 65535.0f - 1.0f;
}

// How many midpoints of the map lie below: its nearest value, on a tie the lower.
[[maybe_unused]] LOCKSTEP_BOTH inline std::uint8_t nearest(const float* map, float value) {
  int low = 0, high = 255;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (value > (map[middle] + map[middle + 1]) * 0.5f) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return std::uint8_t(low);
}

// Code of a scale, less the offset, beside the largest of its block. Where that is zero, or no number, so is the code.
[[maybe_unused]] LOCKSTEP_BOTH inline std::uint8_t scale_code(const float* map, float value, float largest) {
  const float share = value * (1.0f / largest);
  return largest > 0 && share == share ? nearest(map, binned(share)) : std::uint8_t(0);
}

}  // namespace
}  // namespace lockstep::kernels
