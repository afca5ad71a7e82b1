// Cosines and sines of the rotary embedding for every position: angles are f32 products, as in transformers.
#include <cmath>

#include "base/error.h"
#include "rank/kernels/kernels.h"

namespace lockstep::kernels {

RotaryTable rotary_table(std::int64_t time, const at::Tensor& inverse_frequencies, const at::Device& device) {
  base::check(inverse_frequencies.is_cpu() && inverse_frequencies.scalar_type() == at::kFloat && inverse_frequencies.is_contiguous(),
              "frequencies are f32 on the host");
  const auto half = inverse_frequencies.numel();
  const auto* frequencies = inverse_frequencies.const_data_ptr<float>();
  auto cosine = at::empty({time, half}, at::kFloat), sine = at::empty({time, half}, at::kFloat);
  auto *c = cosine.data_ptr<float>(), *s = sine.data_ptr<float>();
  for (std::int64_t t = 0; t < time; ++t) {
    for (std::int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(t) * frequencies[i];
      c[t * half + i] = std::cos(angle);
      s[t * half + i] = std::sin(angle);
    }
  }
  return {cosine.to(device), sine.to(device)};
}

}  // namespace lockstep::kernels
