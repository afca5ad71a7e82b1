// AdamW against a straightforward loop in f64, the decisions about a step, and the learning-rate schedules.
#include "rank/optim/elementwise.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "rank/model/model.h"
#include "rank/model/weights/whole_store.h"
#include "support/reference/test_device.h"

namespace lockstep::optim {
namespace {

model::UnitSpec small_unit() {
  return {.name = "unit",
          .leaves = {{.name = "w", .pieces = {{"w", {13, 9}}}},
                     {.name = "n", .pieces = {{"n1", {7}}, {"n2", {5}}}, .init = model::Init::ones, .init_std = 0, .decay = false}}};
}

at::Tensor f64_scalar(double value) { return at::full({}, value, at::TensorOptions().dtype(at::kDouble)).to(test::device()); }

// AdamW as its paper has it, one number at a time.
struct PlainAdamW {
  std::vector<double> p, m, v;
  void step(const std::vector<double>& g, std::int64_t decayed, double lr, const Settings& s, int t) {
    for (std::size_t i = 0; i < p.size(); ++i) {
      m[i] = s.beta1 * m[i] + (1 - s.beta1) * g[i];
      v[i] = s.beta2 * v[i] + (1 - s.beta2) * g[i] * g[i];
      const double m_hat = m[i] / (1 - std::pow(s.beta1, t)), v_hat = v[i] / (1 - std::pow(s.beta2, t));
      if (std::int64_t(i) < decayed) p[i] -= lr * s.weight_decay * p[i];
      p[i] -= lr * m_hat / (std::sqrt(v_hat) + s.epsilon);
    }
  }
};

std::vector<double> numbers(const at::Tensor& t) {
  const auto host = t.to(at::kCPU).to(at::kDouble).contiguous();
  return {host.data_ptr<double>(), host.data_ptr<double>() + host.numel()};
}

struct Types {
  at::ScalarType weight, gradient;
};

class AdamWTypes : public testing::TestWithParam<Types> {};

TEST_P(AdamWTypes, EqualsThePlainLoop) {
  const auto [weight_type, gradient_type] = GetParam();
  model::Unit unit(small_unit(), {.device = test::device(), .weight_dtype = weight_type, .gradient_dtype = gradient_type});
  unit.master().copy_(at::randn({unit.elements()}, test::generator(1)));
  const Settings settings{.weight_decay = 0.1, .max_grad_norm = 0, .nominal_tokens = 1};
  const model::WholeStore store({&unit});
  Elementwise adamw(store, settings);
  PlainAdamW plain{numbers(unit.master()), std::vector<double>(unit.elements()), std::vector<double>(unit.elements())};
  for (int t = 1; t <= 12; ++t) {
    unit.gradients().copy_(at::randn({unit.elements()}, test::generator(10 + t)));
    const double lr = 0.01 * t;
    plain.step(numbers(unit.gradients()), unit.decayed(), lr, settings, t);
    adamw.finish_gradients(adamw.sum_of_squares(), f64_scalar(1), f64_scalar(0));
    adamw.step(lr);
    EXPECT_EQ(unit.gradients().abs().max().item<double>(), 0) << "gradients are zero for the next step";
  }
  const auto actual = numbers(unit.master()), m = numbers(adamw.first(0)), v = numbers(adamw.second(0));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], plain.p[i], 2e-5) << i;
    EXPECT_NEAR(m[i], plain.m[i], 2e-6) << i;
    EXPECT_NEAR(v[i], plain.v[i], 2e-6) << i;
  }
  EXPECT_TRUE(at::equal(unit.weights(), unit.master().to(weight_type))) << "weights are the master, rounded";
}

INSTANTIATE_TEST_SUITE_P(Types, AdamWTypes,
                         testing::Values(Types{at::kFloat, at::kFloat}, Types{at::kBFloat16, at::kBFloat16},
                                         Types{at::kBFloat16, at::kFloat}, Types{at::kHalf, at::kHalf}, Types{at::kHalf, at::kFloat}),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param.weight)) + "_" + c10::toString(info.param.gradient);
                         });

struct Step {
  double gradient, tokens, loss;
  bool skipped;
  double norm, scale_after;
  int updates, in_a_row, total;
};

TEST(Control, DecidesClipsScalesAndSkips) {
  model::Unit unit(small_unit(), {.device = test::device()});
  const Settings settings{
      .max_grad_norm = 1, .nominal_tokens = 100, .dynamic_loss_scale = true, .initial_loss_scale = 1024, .loss_scale_window = 2};
  const model::WholeStore store({&unit});
  Elementwise adamw(store, settings);
  EXPECT_FLOAT_EQ(adamw.scale().item<float>(), 10.24f);
  // Gradient: one number of that size. Its true mean is gradient * (100 / tokens) / loss scale.
  const std::vector<Step> steps = {
      {1024, 100, 1, false, 1.0, 1024, 1, 0, 0},
      {1024, 50, 1, false, 2.0, 2048, 2, 0, 0},  // half the tokens count double; second good step: the scale doubles
      {NAN, 100, 1, true, NAN, 1024, 2, 1, 1},   // not finite: skip, halve
      {INFINITY, 100, 1, true, INFINITY, 512, 2, 2, 2},
      {512, 100, NAN, true, 1.0, 256, 2, 3, 3},  // the loss counts too
      {256, 0, 0, true, 0, 256, 2, 0, 3},        // no token: nothing to learn, and no failure
      {256, 100, 1, false, 1.0, 512, 3, 0, 3},
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto& s = steps[i];
    unit.gradients().zero_();
    unit.gradients()[3].fill_(s.gradient);
    const auto weights = unit.weights().clone(), moment = adamw.first(0).clone();
    adamw.finish_gradients(adamw.sum_of_squares(), f64_scalar(s.tokens), f64_scalar(s.loss));
    adamw.step(1e-3);
    const auto report = adamw.report();
    EXPECT_EQ(report.skipped, s.skipped) << i;
    EXPECT_EQ(at::equal(unit.weights(), weights) && at::equal(adamw.first(0), moment), s.skipped) << i;
    EXPECT_EQ(unit.gradients().abs().sum().item<double>(), 0) << i << ": a skipped step clears its gradients too";
    if (std::isfinite(s.norm))
      EXPECT_NEAR(report.gradient_norm, s.norm, 1e-9) << i;
    else
      EXPECT_FALSE(std::isfinite(report.gradient_norm)) << i;
    EXPECT_EQ(report.loss_scale, s.scale_after) << i;
    EXPECT_FLOAT_EQ(adamw.scale().item<float>(), float(s.scale_after / 100)) << i;
    EXPECT_EQ(report.updates, s.updates) << i;
    EXPECT_EQ(report.skipped_in_a_row, s.in_a_row) << i;
    EXPECT_EQ(report.skipped_total, s.total) << i;
  }
}

TEST(Control, ClippedUpdateEqualsUpdateWithAScaledGradient) {
  model::Unit clipped(small_unit(), {.device = test::device()}), scaled(small_unit(), {.device = test::device()});
  const auto gradient = at::randn({clipped.elements()}, test::generator(3)).to(test::device());
  const double norm = gradient.to(at::kDouble).pow(2).sum().sqrt().item<double>();
  const model::WholeStore clipped_store({&clipped}), scaled_store({&scaled});
  Elementwise a(clipped_store, {.max_grad_norm = 0.5}), b(scaled_store, {.max_grad_norm = 0});
  clipped.gradients().copy_(gradient);
  scaled.gradients().copy_(gradient * (0.5 / (norm + 1e-6)));
  for (auto* optimizer : {&a, &b}) {
    optimizer->finish_gradients(optimizer->sum_of_squares(), f64_scalar(1), f64_scalar(0));
    optimizer->step(1e-2);
  }
  EXPECT_NEAR(a.report().gradient_norm, norm, 1e-5);
  EXPECT_LE((a.first(0) - b.first(0)).abs().max().item<double>(), 1e-7);
  EXPECT_LE((clipped.weights() - scaled.weights()).abs().max().item<double>(), 1e-6);
}

TEST(State, HasNamedViewsAndComesBack) {
  model::Unit unit(small_unit(), {.device = test::device()});
  const model::WholeStore store({&unit});
  Elementwise adamw(store, {.nominal_tokens = 8, .dynamic_loss_scale = true, .initial_loss_scale = 16});
  const auto views = adamw.named_state();
  std::vector<std::string> names;
  for (const auto& view : views) names.push_back(view.name);
  EXPECT_EQ(names, (std::vector<std::string>{"exp_avg.w", "exp_avg.n1", "exp_avg.n2", "exp_avg_sq.w", "exp_avg_sq.n1", "exp_avg_sq.n2"}));
  EXPECT_EQ(views[0].view.sizes(), (at::IntArrayRef{13, 9}));
  views[2].view.fill_(3);
  EXPECT_EQ(adamw.first(0).sum().item<double>(), 15) << "views write through";
  adamw.restore_control(41, 4, 7, 2);
  EXPECT_EQ(adamw.report().updates, 41);
  EXPECT_EQ(adamw.report().skipped_total, 2);
  EXPECT_EQ(adamw.good_steps(), 7);
  EXPECT_FLOAT_EQ(adamw.scale().item<float>(), 0.5f);
}

struct Rate {
  config::LrSchedule schedule;
  std::int64_t warmup, step, total;
  double expected;
};

TEST(Schedule, Table) {
  using enum config::LrSchedule;
  for (const auto& r : std::vector<Rate>{
           {constant, 0, 0, 100, 1},
           {constant, 0, 99, 100, 1},
           {constant, 4, 0, 100, 0.25},
           {constant, 4, 3, 100, 1},
           {constant, 4, 4, 100, 1},
           {linear, 0, 0, 101, 1},
           {linear, 0, 50, 101, 0.55},
           {linear, 0, 100, 101, 0.1},
           {linear, 0, 500, 101, 0.1},
           {linear, 10, 10, 111, 1},
           {linear, 10, 110, 111, 0.1},
           {cosine, 0, 0, 101, 1},
           {cosine, 0, 50, 101, 0.55},
           {cosine, 0, 25, 101, 0.868198},
           {cosine, 0, 100, 101, 0.1},
           {cosine, 10, 4, 101, 0.5},
           {wsd, 0, 0, 100, 1},
           {wsd, 0, 79, 100, 1},
           {wsd, 0, 80, 100, 1},
           {wsd, 0, 99, 100, 0.1},
           {wsd, 0, 85, 100, 1 - 0.9 * 5 / 19},
           {wsd, 90, 89, 100, 1},
           {wsd, 90, 99, 100, 0.1},
           {cosine, 0, 0, 1, 1},
           {linear, 5, 2, 3, 0.6},
           {wsd, 0, 0, 1, 1},
       }) {
    config::TrainerConfig trainer;
    trainer.lr_schedule = r.schedule;
    trainer.warmup_steps = r.warmup;
    trainer.min_lr_ratio = 0.1;
    trainer.decay_fraction = 0.2;
    EXPECT_NEAR(learning_rate(trainer, 2.0, r.step, r.total), 2.0 * r.expected, 2e-6)
        << "schedule " << int(r.schedule) << ", warm-up " << r.warmup << ", step " << r.step << " of " << r.total;
  }
}

}  // namespace
}  // namespace lockstep::optim
