// Training without masters: bf16 weights and moments with stochastic rounding follow f32 ones, and rounding to nearest does not.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "rank/optim/elementwise.h"
#include "rank/model/weights/whole_store.h"
#include "support/reference/decoder_fixture.h"

namespace lockstep::optim {
namespace {

enum class States { f32, stochastic, nearest };

config::ModelConfig tiny() {
  config::ModelConfig c;
  c.hidden_size = 64;
  c.num_layers = 2;
  c.num_heads = 4;
  c.kv_heads = 2;
  c.vocab_size = 96;
  c.max_seq_len = 32;
  c.initializer_range = 0.08;
  return c;
}

// Losses of `steps` steps on four batches in turn.
std::vector<double> losses(States states, int steps, double rate) {
  auto units = test::make_units(
      tiny(),
      {.device = test::device(), .weight_dtype = at::kBFloat16, .gradient_dtype = at::kBFloat16, .master = states != States::stochastic});
  model::Decoder decoder(tiny(), test::pointers(units));
  const double tokens = 4 * 32;
  const model::WholeStore store(test::pointers(units));
  Elementwise adamw(store, {.weight_decay = 0, .nominal_tokens = tokens});
  const auto total = at::full({}, tokens, at::TensorOptions().dtype(at::kDouble)).to(test::device());
  const auto to_nearest = [](const at::Tensor& t) { t.copy_(t.to(at::kBFloat16)); };
  std::vector<double> all;
  for (int step = 0; step < steps; ++step) {
    const auto batch = test::random_batch({.vocab = 96, .batch = 4, .time = 32}, step % 4, test::device());
    const auto loss = decoder.forward_backward(batch.tokens, batch.targets, adamw.scale());
    all.push_back(loss.item<double>() / tokens);
    adamw.finish_gradients(adamw.sum_of_squares(), total, loss.to(at::kDouble));
    adamw.step(rate);
    if (states != States::nearest) continue;
    for (std::size_t i = 0; i < units.size(); ++i) {
      to_nearest(units[i]->master());
      to_nearest(adamw.first(i));
      to_nearest(adamw.second(i));
    }
  }
  return all;
}

double mean_of_last(const std::vector<double>& values, std::size_t count) {
  double sum = 0;
  for (std::size_t i = values.size() - count; i < values.size(); ++i) sum += values[i];
  return sum / double(count);
}

TEST(Bf16States, FollowF32WhereRoundingToNearestStandsStill) {
  const int steps = 100;
  const double rate = 1e-4;  // below half the spacing of bf16 at most weights' size
  const auto exact = losses(States::f32, steps, rate), stochastic = losses(States::stochastic, steps, rate),
             nearest = losses(States::nearest, steps, rate);
  const double learned = exact.front() - mean_of_last(exact, 4);
  EXPECT_GT(learned, 0.1) << "there is something to follow";
  for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(stochastic[i], exact[i], 0.02 * exact[i]) << "step " << i;
  EXPECT_NEAR(mean_of_last(stochastic, 4), mean_of_last(exact, 4), 0.1 * learned);
  EXPECT_GT(mean_of_last(nearest, 4), mean_of_last(exact, 4) + 0.3 * learned) << "to nearest, most updates are lost";
}

TEST(Bf16States, HoldNoMasterAndKeepPaddingZero) {
  auto units =
      test::make_units(tiny(), {.device = test::device(), .weight_dtype = at::kBFloat16, .gradient_dtype = at::kBFloat16, .master = false});
  const model::WholeStore store(test::pointers(units));
  Elementwise adamw(store, {.weight_decay = 0.1});
  for (int step = 0; step < 3; ++step) {
    for (auto& unit : units)
      for (std::size_t leaf = 0; leaf < unit->spec().leaves.size(); ++leaf) unit->gradient(leaf).fill_(0.1 * (step + 1));
    const auto one = at::ones({}, at::TensorOptions().dtype(at::kDouble)).to(test::device());
    adamw.finish_gradients(adamw.sum_of_squares(), one, one);
    adamw.step(0.01);
  }
  for (std::size_t i = 0; i < units.size(); ++i) {
    const auto& unit = *units[store.updates()[i].unit];
    EXPECT_FALSE(unit.master().defined());
    EXPECT_EQ(unit.exact().const_data_ptr(), unit.weights().const_data_ptr());
    EXPECT_EQ(adamw.first(i).scalar_type(), at::kBFloat16);
    auto padding = at::ones({unit.elements()}, unit.weights().options().dtype(at::kFloat));
    for (const auto& [name, view] : unit.pieces_of(padding)) view.fill_(0);
    for (const auto& buffer : {unit.weights(), adamw.first(i), adamw.second(i)})
      EXPECT_EQ((buffer.to(at::kFloat) * padding).abs().max().item<double>(), 0) << unit.name();
  }
}

}  // namespace
}  // namespace lockstep::optim
