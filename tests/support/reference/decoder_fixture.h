// Units, weights and batches for tests of the decoder.
#pragma once

#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>

#include "rank/model/model.h"
#include "support/reference/test_device.h"

namespace lockstep::test {

inline std::vector<std::unique_ptr<model::Unit>> make_units(const config::ModelConfig& config, const model::UnitStorage& storage,
                                                            std::int64_t seed = 7) {
  std::vector<std::unique_ptr<model::Unit>> units;
  for (auto& spec : model::decoder_units(config)) units.push_back(std::make_unique<model::Unit>(spec, storage));
  model::initialize(units, seed);
  return units;
}

inline std::vector<model::Unit*> pointers(const std::vector<std::unique_ptr<model::Unit>>& units) {
  std::vector<model::Unit*> out;
  for (const auto& unit : units) out.push_back(unit.get());
  return out;
}

struct BatchShape {
  std::int64_t vocab, batch = 2, time = 16;
  int ignored = 0;  // every n-th target is -100
};
struct Batch {
  at::Tensor tokens, targets;  // [batch, time] i64
};

inline Batch random_batch(const BatchShape& shape, int seed, const at::Device& device) {
  auto random = generator(100 + seed);
  const auto tokens = at::randint(0, shape.vocab, {shape.batch, shape.time}, random, at::kLong);
  const auto targets = at::randint(0, shape.vocab, {shape.batch, shape.time}, random, at::kLong);
  if (shape.ignored > 0)
    for (std::int64_t i = 0; i < targets.numel(); i += shape.ignored) targets.view({-1})[i].fill_(-100);
  return {tokens.to(device), targets.to(device)};
}

// The loss of the second of two micro-steps: buffers are used again, gradients are added up.
inline double loss_of_two_steps(model::Decoder& decoder, const BatchShape& shape, const at::Device& device) {
  double loss = 0;
  for (int step = 0; step < 2; ++step) {
    const Batch batch = random_batch(shape, step, device);
    loss = decoder.forward_backward(batch.tokens, batch.targets, at::ones({}, batch.tokens.options().dtype(at::kFloat))).item<double>();
  }
  return loss;
}

}  // namespace lockstep::test
