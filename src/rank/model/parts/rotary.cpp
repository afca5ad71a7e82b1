// Inverse frequencies in f32: plain, linear and Llama 3's, which stretches long wavelengths and leaves short ones.
#include "rank/model/parts/rotary.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/pow.h>

#include <numbers>

namespace lockstep::model {
namespace {

float llama3(float frequency, const config::RopeScalingConfig& scaling) {
  const auto factor = static_cast<float>(scaling.factor), low = static_cast<float>(scaling.low_freq_factor);
  const auto length = static_cast<float>(scaling.original_max_seq_len);
  const auto span = static_cast<float>(scaling.high_freq_factor - scaling.low_freq_factor);
  const auto longest = static_cast<float>(static_cast<double>(scaling.original_max_seq_len) / scaling.low_freq_factor);
  const auto shortest = static_cast<float>(static_cast<double>(scaling.original_max_seq_len) / scaling.high_freq_factor);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
  if (wavelength > longest) return frequency / factor;
  if (wavelength < shortest) return frequency;
  const float kept = (length / wavelength - low) / span;
  return (1 - kept) * frequency / factor + kept * frequency;
}

}  // namespace

at::Tensor inverse_frequencies(std::int64_t head_dim, double theta, const config::RopeScalingConfig& scaling) {
  const at::Tensor exponents = at::arange(0, head_dim, 2, at::kFloat).div(head_dim);
  at::Tensor frequencies = at::pow(theta, exponents).reciprocal();
  auto* numbers = frequencies.data_ptr<float>();
  for (std::int64_t i = 0; i < frequencies.numel(); ++i) {
    switch (scaling.type) {
      case config::RopeScaling::none: break;
      case config::RopeScaling::linear: numbers[i] /= static_cast<float>(scaling.factor); break;
      case config::RopeScaling::llama3: numbers[i] = llama3(numbers[i], scaling); break;
    }
  }
  return frequencies;
}

}  // namespace lockstep::model
