// AdamW with 8-bit moments and Muon's momentum against plain loops: the same bits on every device, whatever the alignment.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "rank/kernels/rules/update.h"
#include "unit/kernels/update_fixture.h"

namespace lockstep::kernels {
namespace {

// A copy on the device that begins `shift` numbers into its memory: shifted, vectors no longer fit.
at::Tensor placed(const at::Tensor& host, std::int64_t shift) {
  const auto memory = at::zeros({host.numel() + shift}, host.options()).to(test::device());
  const auto view = memory.narrow(0, shift, host.numel());
  view.copy_(host);
  return view;
}

// Numbers of a block, and what they must become.
struct Moment {
  at::Tensor codes, scale, map;  // on the host
  std::vector<float> values;
  Moment(std::int64_t count, bool with_sign, int seed) : map(dynamic_map(with_sign, at::kCPU)), values(count) {
    codes = at::randint(0, 256, {count}, test::generator(seed), at::kByte);
    scale = random_numbers((count + 255) / 256, seed + 1).abs();
    for (std::int64_t i = 0; i < count; ++i)
      values[i] = map.data_ptr<float>()[codes.data_ptr<std::uint8_t>()[i]] * scale.data_ptr<float>()[i / 256];
  }
  void encode() {
    for (std::int64_t begin = 0; begin < codes.numel(); begin += 256) {
      const auto end = std::min<std::int64_t>(begin + 256, codes.numel());
      float most = 0;
      for (auto i = begin; i < end; ++i) most = std::max(most, std::fabs(values[i]));
      scale.data_ptr<float>()[begin / 256] = most;
      for (auto i = begin; i < end; ++i) {  // the nearest of all codes, the lower of two
        const float wanted = std::clamp(values[i] * (most > 0 ? 1.0f / most : 0.0f), -1.0f, 1.0f);
        int best = 0;
        for (int c = 1; c < 256; ++c)
          if (std::fabs(map.data_ptr<float>()[c] - wanted) < std::fabs(map.data_ptr<float>()[best] - wanted)) best = c;
        codes.data_ptr<std::uint8_t>()[i] = std::uint8_t(best);
      }
    }
  }
};

struct Types {
  at::ScalarType gradient, exact, weights;
};

TEST(AdamW8bit, IsTheBitsOfAPlainLoop) {
  for (const auto& types : {Types{at::kFloat, at::kFloat, at::kFloat}, Types{at::kBFloat16, at::kFloat, at::kBFloat16},
                            Types{at::kHalf, at::kFloat, at::kHalf}, Types{at::kBFloat16, at::kBFloat16, at::kBFloat16}})
    for (const std::int64_t count : {1, 256, 300, 20000})
      for (const std::int64_t shift : {0, 3}) {
        SCOPED_TRACE(fmt::format("{} numbers, weights {}, shifted by {}", count, c10::toString(types.exact), shift));
        Moment first(count, true, 10), second(count, false, 20);
        const auto gradient = random_numbers(count, 1, types.gradient), exact = random_numbers(count, 2, types.exact);
        const bool copies = types.weights != types.exact;
        const auto g = placed(gradient, shift), p = placed(exact, shift), w = copies ? placed(at::zeros({count}, types.weights), shift) : p;
        const QuantState m{placed(first.codes, shift), first.scale.to(test::device(), false, true), first.map.to(test::device())},
            v{placed(second.codes, shift), second.scale.to(test::device(), false, true), second.map.to(test::device())};
        const Control control{.factor = 0.37, .updates = 9, .loss_scale = 1};
        const UpdateSettings settings{.rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .key = 5, .place = 768};
        adamw_8bit({g, p, w, {}, {}}, m, v, on_device(control), settings);

        const auto n = numbers_of(Update{.rate = settings.rate,
                                         .beta1 = settings.beta1,
                                         .beta2 = settings.beta2,
                                         .epsilon = settings.epsilon,
                                         .decay = settings.decay,
                                         .key = settings.key,
                                         .control = &control,
                                         .rule = Rule::adamw});
        const auto wide = gradient.to(at::kFloat), want = exact.to(at::kFloat);
        for (std::int64_t i = 0; i < count; ++i) {
          float& weight = want.data_ptr<float>()[i];
          update_one<Rule::adamw>(n, wide.data_ptr<float>()[i], weight, first.values[i], second.values[i]);
          if (types.exact == at::kBFloat16) {
            const std::uint32_t bits = std::uint32_t(stochastic_bf16(weight, for_weight(random_word(n, std::uint64_t(768 + i))))) << 16;
            std::memcpy(&weight, &bits, 4);
          }
        }
        first.encode();
        second.encode();
        EXPECT_TRUE(same_bits(p, want.to(types.exact)));
        EXPECT_TRUE(same_bits(m.codes, first.codes) && same_bits(m.scale, first.scale));
        EXPECT_TRUE(same_bits(v.codes, second.codes) && same_bits(v.scale, second.scale));
        if (copies) EXPECT_TRUE(same_bits(w, want.to(types.weights)));
        EXPECT_EQ(g.abs().max().item<double>(), 0);
      }
}

TEST(AdamW8bit, SkipsAndKeepsZeros) {
  const auto zeros = [](at::ScalarType type) { return at::zeros({512}, at::TensorOptions().dtype(type).device(test::device())); };
  const QuantState m{zeros(at::kByte), zeros(at::kFloat).narrow(0, 0, 2), dynamic_map(true, test::device())},
      v{zeros(at::kByte), zeros(at::kFloat).narrow(0, 0, 2), dynamic_map(false, test::device())};
  const auto gradient = zeros(at::kFloat), weights = zeros(at::kFloat);
  const UpdateSettings settings{.rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1};
  adamw_8bit({gradient, weights, weights, {}, {}}, m, v, on_device({.factor = 1, .updates = 1}), settings);
  EXPECT_EQ(weights.abs().max().item<double>(), 0) << "nothing came of nothing";
  EXPECT_EQ(m.scale.abs().max().item<double>() + v.scale.abs().max().item<double>(), 0);
  gradient.fill_(NAN);
  weights.fill_(2);
  const auto codes = m.codes.clone();
  adamw_8bit({gradient, weights, weights, {}, {}}, m, v, on_device({.factor = 1, .skip = 1, .updates = 1}), settings);
  EXPECT_TRUE(at::equal(codes, m.codes));
  EXPECT_EQ((weights - 2).abs().max().item<double>(), 0);
  EXPECT_EQ(gradient.abs().max().item<double>(), 0);
}

TEST(Nesterov, IsTheBitsOfAPlainLoop) {
  const Types kinds[] = {{at::kFloat, at::kFloat, at::kFloat},
                         {at::kBFloat16, at::kFloat, at::kBFloat16},
                         {at::kHalf, at::kFloat, at::kFloat},
                         {at::kBFloat16, at::kBFloat16, at::kBFloat16}};
  for (const auto& [gradient_type, momentum_type, out_type] : kinds)
    for (const std::int64_t count : {1, 300, 5000})
      for (const std::int64_t shift : {0, 3}) {
        const auto gradient = random_numbers(count, 1, gradient_type), momentum = random_numbers(count, 2, momentum_type);
        const auto g = placed(gradient, shift), m = placed(momentum, shift), out = placed(at::zeros({count}, out_type), shift);
        const Control control{.factor = 0.37, .updates = 9, .loss_scale = 1};
        nesterov(g, m, out, on_device(control), {.beta1 = 0.95, .key = 5, .place = 64});
        const auto n = numbers_of(Nesterov{.beta = 0.95, .key = 5, .control = &control});
        const auto wide = gradient.to(at::kFloat), want = momentum.to(at::kFloat), want_out = at::zeros({count});
        for (std::int64_t i = 0; i < count; ++i) {
          float& value = want.data_ptr<float>()[i];
          nesterov_one(n, wide.data_ptr<float>()[i], value, want_out.data_ptr<float>()[i]);
          if (momentum_type == at::kBFloat16) {
            const std::uint32_t bits = std::uint32_t(stochastic_bf16(value, for_first(random_word(n, std::uint64_t(64 + i))))) << 16;
            std::memcpy(&value, &bits, 4);
          }
        }
        EXPECT_TRUE(same_bits(m, want.to(momentum_type))) << count;
        EXPECT_TRUE(same_bits(out, want_out.to(out_type))) << count;
        EXPECT_EQ(g.abs().max().item<double>(), 0);
      }
}

}  // namespace
}  // namespace lockstep::kernels
