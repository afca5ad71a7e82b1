// Cosines and sines of the rotary embedding for every position, in f32 from f64 angles.
#include <cmath>

#include "rank/kernels/kernels.h"

namespace lockstep::kernels {

RotaryTable rotary_table(std::int64_t time, std::int64_t head_dim, double theta, const at::Device& device) {
  const auto half = head_dim / 2;
  auto cosine = at::empty({time, half}, at::kFloat), sine = at::empty({time, half}, at::kFloat);
  auto *c = cosine.data_ptr<float>(), *s = sine.data_ptr<float>();
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(theta, -2.0 * double(i) / double(head_dim));
    for (std::int64_t t = 0; t < time; ++t) {
      c[t * half + i] = float(std::cos(double(t) * frequency));
      s[t * half + i] = float(std::sin(double(t) * frequency));
    }
  }
  return {cosine.to(device), sine.to(device)};
}

}  // namespace lockstep::kernels
