// Updates of flat buffers against their rules in f64, and against one number at a time: the same bits on every device. Stochastic rounding
// favors no side.
#include "rank/kernels/rules/update.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "unit/kernels/update_fixture.h"

namespace lockstep::kernels {
namespace {

Control control_numbers(double updates, double skip = 0) { return {.factor = 0.37, .skip = skip, .updates = updates, .loss_scale = 1}; }

struct Case {
  const char* name;
  Rule rule;
  at::ScalarType gradient, exact, weights, state;
};

const Case kCases[] = {
    {"adamw_f32", Rule::adamw, at::kFloat, at::kFloat, at::kFloat, at::kFloat},
    {"adamw_bf16_masters", Rule::adamw, at::kBFloat16, at::kFloat, at::kBFloat16, at::kFloat},
    {"adamw_f16_masters", Rule::adamw, at::kHalf, at::kFloat, at::kHalf, at::kFloat},
    {"adamw_bf16_states", Rule::adamw, at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kBFloat16},
    {"adamw_bf16_states_f32_gradient", Rule::adamw, at::kFloat, at::kBFloat16, at::kBFloat16, at::kBFloat16},
    {"adamw_bf16_weights_f32_states", Rule::adamw, at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kFloat},
    {"lion_f32", Rule::lion, at::kFloat, at::kFloat, at::kFloat, at::kFloat},
    {"lion_bf16_masters", Rule::lion, at::kBFloat16, at::kFloat, at::kBFloat16, at::kFloat},
    {"lion_bf16_states", Rule::lion, at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kBFloat16},
    {"sgd_f32", Rule::sgd, at::kFloat, at::kFloat, at::kFloat, at::kFloat},
    {"sgd_bf16_masters", Rule::sgd, at::kBFloat16, at::kFloat, at::kBFloat16, at::kFloat},
    {"sgd_bf16_states", Rule::sgd, at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kBFloat16},
    {"apply_f32", Rule::apply, at::kFloat, at::kFloat, at::kFloat, at::kFloat},
    {"apply_bf16_masters", Rule::apply, at::kFloat, at::kFloat, at::kBFloat16, at::kFloat},
    {"apply_bf16_weights", Rule::apply, at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kBFloat16},
};

UpdateSettings settings_of(Rule rule, std::int64_t place) {
  return {.rule = rule, .rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .key = 99, .place = place};
}

// The state of a buffer of `type` after it received these numbers: f32 as they are, bf16 rounded by these bits.
template <typename F>
at::Tensor settled(const std::vector<float>& values, at::ScalarType type, F bits) {
  const auto out = at::zeros({std::int64_t(values.size())}, type);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (type == at::kFloat)
      out.data_ptr<float>()[i] = values[i];
    else
      static_cast<std::uint16_t*>(out.data_ptr())[i] = stochastic_bf16(values[i], bits(i));
  }
  return out;
}

class Updates : public testing::TestWithParam<Case> {};

// The rules as their papers and torch.optim state them, in f64. factor: what gradients are multiplied with first.
void follow_rule(Rule rule, const UpdateSettings& s, double factor, double updates, double g, double& p, double& m, double& v) {
  if (rule != Rule::apply) g *= factor;
  if (rule == Rule::adamw) {
    m = s.beta1 * m + (1 - s.beta1) * g;
    v = s.beta2 * v + (1 - s.beta2) * g * g;
    const double unbiased_m = m / (1 - std::pow(s.beta1, updates)), unbiased_v = v / (1 - std::pow(s.beta2, updates));
    p = p * (1 - s.rate * s.decay) - s.rate * unbiased_m / (std::sqrt(unbiased_v) + s.epsilon);
  } else if (rule == Rule::lion) {
    const double direction = s.beta1 * m + (1 - s.beta1) * g;
    m = s.beta2 * m + (1 - s.beta2) * g;
    p = p * (1 - s.rate * s.decay) - s.rate * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
  } else if (rule == Rule::sgd) {
    m = s.beta1 * m + g + s.decay * p;
    p = p - s.rate * m;
  } else {
    p = p * (1 - s.rate * s.decay) - s.rate * g;
  }
}

// One step of a number's own format: stochastic rounding may end on either side, f32 adds a few roundings.
double one_step(double value, at::ScalarType type, double terms) {
  return (type == at::kFloat ? 4 * 0x1p-23 : 0x1p-7) * std::max(std::abs(value), type == at::kFloat ? terms : 0) + 1e-30;
}

TEST_P(Updates, FollowTheirRule) {
  const auto& c = GetParam();
  constexpr std::int64_t count = 1003;
  const auto before = random_numbers(count, 1, c.exact), gradient = random_numbers(count, 2, c.gradient),
             first = random_numbers(count, 3, c.state), second = random_numbers(count, 4, c.state).abs();
  const auto on = [](const at::Tensor& t) { return t.to(test::device(), false, true); };
  const UpdateBuffers buffers{on(gradient), on(before), {}, on(first), on(second)};
  const auto weights = c.weights != c.exact ? at::zeros({count}, buffers.exact.options().dtype(c.weights)) : buffers.exact;
  const auto settings = settings_of(c.rule, 5000);
  const auto numbers = control_numbers(17);
  update({buffers.gradient, buffers.exact, weights, buffers.first, buffers.second}, on_device(numbers), settings);

  const auto wide = [](const at::Tensor& t) { return t.to(at::kCPU, at::kDouble); };
  const auto g = wide(gradient), p0 = wide(before), m0 = wide(first), v0 = wide(second);
  const auto p1 = wide(buffers.exact), m1 = wide(buffers.first), v1 = wide(buffers.second);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = [i](const at::Tensor& t) { return t.const_data_ptr<double>()[i]; };
    double p = at(p0), m = at(m0), v = at(v0);
    follow_rule(c.rule, settings, numbers.factor, numbers.updates, at(g), p, m, v);
    const double terms = std::abs(at(p0)) + std::abs(at(m0)) + std::abs(at(g));
    ASSERT_NEAR(at(p1), p, one_step(p, c.exact, terms)) << i;
    if (c.rule != Rule::apply) ASSERT_NEAR(at(m1), m, one_step(m, c.state, terms)) << i;
    if (c.rule == Rule::adamw) ASSERT_NEAR(at(v1), v, one_step(v, c.state, terms)) << i;
  }
}

// Vectors, tails and devices: the same bits as the kernel's own arithmetic, one number at a time.
TEST_P(Updates, AreTheBitsOfOneNumberAtATime) {
  const auto& c = GetParam();
  for (const std::int64_t count : {1, 7, 64, 1003, 70000}) {
    const auto before = random_numbers(count, 1, c.exact), gradient = random_numbers(count, 2, c.gradient),
               first = random_numbers(count, 3, c.state), second = random_numbers(count, 4, c.state).abs();
    const UpdateBuffers on{gradient.to(test::device(), false, true),
                           before.to(test::device(), false, true),
                           {},
                           first.to(test::device(), false, true),
                           second.to(test::device(), false, true)};
    const bool copies = c.weights != c.exact;
    const auto weights = copies ? at::zeros({count}, on.exact.options().dtype(c.weights)) : on.exact;
    auto settings = settings_of(c.rule, 5000);
    const auto numbers = control_numbers(17);
    update({on.gradient, on.exact, weights, kStates<Rule::adamw> == 2 ? on.first : at::Tensor(), on.second}, on_device(numbers), settings);

    Update raw{.place = settings.place,
               .rate = settings.rate,
               .beta1 = settings.beta1,
               .beta2 = settings.beta2,
               .epsilon = settings.epsilon,
               .decay = settings.decay,
               .key = settings.key,
               .control = &numbers,
               .rule = c.rule};
    const auto n = numbers_of(raw);
    const auto g = gradient.to(at::kFloat), p0 = before.to(at::kFloat), m0 = first.to(at::kFloat), v0 = second.to(at::kFloat);
    std::vector<float> p(count), m(count), v(count);
    for (std::int64_t i = 0; i < count; ++i) {
      p[i] = p0.data_ptr<float>()[i], m[i] = m0.data_ptr<float>()[i], v[i] = v0.data_ptr<float>()[i];
      const float gi = g.data_ptr<float>()[i];
      switch (c.rule) {
        case Rule::adamw: update_one<Rule::adamw>(n, gi, p[i], m[i], v[i]); break;
        case Rule::lion: update_one<Rule::lion>(n, gi, p[i], m[i], v[i]); break;
        case Rule::sgd: update_one<Rule::sgd>(n, gi, p[i], m[i], v[i]); break;
        case Rule::apply: update_one<Rule::apply>(n, gi, p[i], m[i], v[i]); break;
      }
    }
    const auto word = [&](std::size_t i) { return random_word(n, std::uint64_t(settings.place) + i); };
    const auto want = settled(p, c.exact, [&](std::size_t i) { return for_weight(word(i)); });
    EXPECT_TRUE(same_bits(on.exact, want)) << count;
    if (c.rule != Rule::apply)
      EXPECT_TRUE(same_bits(on.first, settled(m, c.state, [&](std::size_t i) { return for_first(word(i)); }))) << count;
    if (c.rule == Rule::adamw)
      EXPECT_TRUE(same_bits(on.second, settled(v, c.state, [&](std::size_t i) { return for_second(word(i)); }))) << count;
    if (copies) EXPECT_TRUE(at::equal(weights.cpu(), want.to(c.weights))) << "the copy is the master, rounded to nearest";
    EXPECT_EQ(on.gradient.abs().max().item<double>(), 0) << "gradients are zero for the next step";
  }
}

TEST_P(Updates, ThatAreSkippedChangeNothing) {
  const auto& c = GetParam();
  const auto fresh = [&](int seed, at::ScalarType type) { return random_numbers(1003, seed, type).to(test::device()); };
  const auto gradient = fresh(1, c.gradient), exact = fresh(2, c.exact), first = fresh(3, c.state), second = fresh(4, c.state).abs();
  const auto e = exact.clone(), f = first.clone(), s = second.clone();
  gradient[5].fill_(NAN);
  update({gradient, exact, {}, first, second}, on_device(control_numbers(3, 1)), settings_of(c.rule, 0));
  EXPECT_TRUE(same_bits(exact, e) && same_bits(first, f) && same_bits(second, s));
  EXPECT_EQ(gradient.abs().max().item<double>(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, Updates, testing::ValuesIn(kCases), [](const auto& info) { return std::string(info.param.name); });

TEST(StochasticRounding, IsRightInTheMean) {
  // Weights of one value, an update of one size that is far below their spacing (2^-8 at 1): single results are neighbors in bf16,
  // their mean is what f32 would hold.
  const std::int64_t count = 1 << 20;
  const double step = 1.0 / 4096 / 3;
  for (const double value : {1.0, -1.0, 1.5, 0.7}) {
    const auto exact = at::full({count}, value, at::TensorOptions().dtype(at::kBFloat16)).to(test::device());
    const double start = exact[0].item<double>();
    const auto gradient = at::full({count}, step, at::TensorOptions().dtype(at::kFloat)).to(test::device());
    update({.gradient = gradient, .exact = exact, .weights = {}, .first = {}, .second = {}}, on_device(control_numbers(1)),
           {.rule = Rule::apply, .rate = 1, .key = 7, .zero_gradient = false});
    const auto result = exact.to(at::kDouble);
    // Standard error of the mean is below spacing / 2 / 1024 = 2e-6.
    EXPECT_NEAR(result.mean().item<double>(), start - step, 1e-5) << value;
    EXPECT_EQ(result.min().item<double>() < result.max().item<double>(), true);
    EXPECT_LE(result.max().item<double>() - result.min().item<double>(), 1.0 / 128) << "neighbors alone";
  }
}

TEST(StochasticRounding, DrawsAnewEachUpdateAndKeepsWhatIsExact) {
  const auto run = [](double updates, std::uint64_t key, double step) {
    const auto exact = at::full({4096}, 1.0, at::TensorOptions().dtype(at::kBFloat16)).to(test::device());
    const auto gradient = at::full({4096}, step, at::TensorOptions().dtype(at::kFloat)).to(test::device());
    update({.gradient = gradient, .exact = exact, .weights = {}, .first = {}, .second = {}}, on_device(control_numbers(updates)),
           {.rule = Rule::apply, .rate = 1, .key = key});
    return exact.to(at::kFloat).cpu();
  };
  const double half = 1.0 / 512;
  EXPECT_TRUE(at::equal(run(1, 7, half), run(1, 7, half)));
  for (const auto& other : {run(2, 7, half), run(1, 8, half)}) {
    const double share = (run(1, 7, half) == other).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(share, 0.5, 0.04) << "another update or key: independent bits";
  }
  EXPECT_EQ((run(1, 7, 0) - 1).abs().max().item<double>(), 0) << "a number that bf16 holds stays";
  EXPECT_EQ((run(1, 7, 1) - 0).abs().max().item<double>(), 0) << "and so does zero";
}

TEST(StochasticRounding, TheThreeRoundingsOfANumberAreUniform) {
  const UpdateNumbers n{.key0 = 0x12345678u, .key1 = 0x9abcdef0u};
  const int count = 1 << 18, bins = 64;
  std::vector<std::vector<int>> found(3, std::vector<int>(bins));
  double products = 0;
  for (int i = 0; i < count; ++i) {
    const auto word = random_word(n, std::uint64_t(i)), next = random_word(n, std::uint64_t(i) + 1);
    const std::uint32_t parts[] = {for_weight(word), for_first(word), for_second(word)};
    for (int k = 0; k < 3; ++k) ++found[k][parts[k] / (65536 / bins)];
    products += (for_weight(word) / 65536.0 - 0.5) * (for_weight(next) / 65536.0 - 0.5);
  }
  for (const auto& counts : found) {
    double chi = 0;
    for (const int c : counts) chi += (c - double(count) / bins) * (c - double(count) / bins) / (double(count) / bins);
    EXPECT_LT(chi, 63 + 5 * std::sqrt(2 * 63.0));
  }
  EXPECT_NEAR(products / count, 0, 1e-3) << "neighbors are independent";
}

}  // namespace
}  // namespace lockstep::kernels
