// What 8 bits do to gradients: no more than their roundings do.
//
// Versions of one model's gradients. `exact`: f32 throughout. `written out`: the plain decoder under autograd, in f32, with every cast to 8
// bits and to bf16 written into it. `simulated`: our decoder, its 8-bit kernels replaced by plain arithmetic. `kernels`: our decoder as it
// trains, on devices that have 8-bit products. Products are compared one by one, from the same inputs: over several of them in a row no two
// versions agree, because a difference in the last bit of bf16 makes a few roundings to 8 bits fall the other way, each by a tenth of its
// number, and that again many in the next product. So whole gradients are compared by their distance from the exact ones.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <map>

#include "config/config.h"
#include "rank/kernels/fp8.h"
#include "rank/model/projection/adapter.h"
#include "support/reference/decoder_fixture.h"
#include "support/reference/reference_decoder.h"
#include "support/reference/simulated_fp8.h"

namespace lockstep::model {
namespace {

struct Fp8Case {
  std::string name;
  bool bias = false;  // and head norms
  bool lora = false, dora = false;
};
void PrintTo(const Fp8Case& c, std::ostream* out) { *out << c.name; }

config::ModelConfig model_of(const Fp8Case& c) {
  config::ModelConfig m;
  m.hidden_size = 128;
  m.num_layers = 2;
  m.num_heads = 4;
  m.kv_heads = 2;
  m.vocab_size = 256;
  m.max_seq_len = 64;
  m.initializer_range = 0.07;
  m.qkv_bias = m.qk_norm = c.bias;
  return config::with_defaults(m);
}

config::LoraConfig lora_of(const Fp8Case& c) {
  config::LoraConfig lora;
  lora.enabled = c.lora;
  lora.rank = 8;
  lora.target_modules = {"all-linear"};
  lora.dora = c.dora;
  return lora;
}

constexpr int kBatches = 3;
test::Batch batch_of(int seed) { return test::random_batch({.vocab = 256, .batch = 2, .time = 32}, seed, test::device()); }

using Gradients = std::map<std::string, at::Tensor>;  // f64 on the CPU

// Our decoder; one micro-step from weights that bf16 holds exactly, so that all versions start from the same numbers.
class Model {
 public:
  // table: null for products without 8 bits.
  Model(const Fp8Case& c, at::ScalarType type, const kernels::Fp8Table* table) : config_(model_of(c)), lora_(lora_of(c)) {
    const UnitStorage trained{.device = test::device(), .weight_dtype = type, .gradient_dtype = at::kFloat};
    UnitStorage base = trained;
    base.trainable = !c.lora;
    units_ = test::make_units(config_, base);
    std::vector<Unit*> adapters;
    if (c.lora) {
      for (auto& spec : adapter_units(config_, lora_)) {
        adapters_.push_back(spec ? std::make_unique<Unit>(std::move(*spec), trained) : nullptr);
        adapters.push_back(adapters_.back().get());
        if (adapters.back())
          adapters.back()->exact().copy_(at::randn({adapters.back()->elements()}, test::generator(adapters.size())) * 0.05);
      }
    }
    round_weights();
    decoder_ = std::make_unique<Decoder>(config_, test::pointers(units_), lora_, adapters);
    decoder_->reset_magnitudes();
    round_weights();
    if (table) decoder_->use_fp8(*table);
  }

  Gradients gradients(int seed) {
    auto& trained = lora_.enabled ? adapters_ : units_;
    for (auto& unit : trained)
      if (unit) unit->gradients().zero_();
    const auto batch = batch_of(seed);
    decoder_->forward_backward(batch.tokens, batch.targets, at::ones({}, batch.tokens.options().dtype(at::kFloat)));
    Gradients all;
    for (auto& unit : trained) {
      if (!unit) continue;
      for (const auto& [name, view] : unit->pieces_of(unit->gradients())) all[name] = view.to(at::kCPU, at::kDouble);
    }
    return all;
  }

 private:
  void round_weights() {
    for (auto* list : {&units_, &adapters_})
      for (auto& unit : *list) {
        if (!unit) continue;
        unit->exact().copy_(unit->exact().to(at::kBFloat16));
        unit->refresh_weights();
      }
  }

  config::ModelConfig config_;
  config::LoraConfig lora_;
  std::vector<std::unique_ptr<Unit>> units_, adapters_;
  std::unique_ptr<Decoder> decoder_;
};

Gradients written_out(const Fp8Case& c, int seed) {
  const config::ModelConfig m = model_of(c);
  const auto units = test::make_units(m, {.device = test::device(), .weight_dtype = at::kBFloat16});
  const auto parameters = reference::copy_parameters(test::pointers(units));
  const auto batch = batch_of(seed);
  const c10::AutoGradMode gradients_wanted(true);
  reference::loss_sum(m, parameters, batch.tokens, batch.targets, reference::with_8_bit_products()).backward();
  Gradients all;
  for (const auto& [name, parameter] : parameters) all[name] = parameter.grad().to(at::kCPU, at::kDouble);
  return all;
}

// Squared distances from the exact gradients, tensor by tensor and summed over batches, as roots of shares of the exact squares.
template <typename F>
std::map<std::string, double> errors(const std::vector<Gradients>& exact, F version) {
  std::map<std::string, double> off, whole;
  for (int seed = 0; seed < kBatches; ++seed)
    for (const auto& [name, gradient] : version(seed)) {
      off[name] += (gradient - exact[std::size_t(seed)].at(name)).square().sum().template item<double>();
      whole[name] += exact[std::size_t(seed)].at(name).square().sum().template item<double>();
    }
  for (auto& [name, squares] : off) squares = std::sqrt(squares / whole.at(name));
  return off;
}

class Fp8Gradients : public testing::TestWithParam<Fp8Case> {};

TEST_P(Fp8Gradients, AreNoFurtherFromTheExactOnesThanTheRoundingsAlone) {
  const Fp8Case& c = GetParam();
  const bool real = kernels::has_fp8(test::device());
  if (!real && c.lora)
    GTEST_SKIP() << "needs a GPU of compute capability 8.9 or later: without one adapters have nothing to be compared with";
  Model plain(c, at::kFloat, nullptr), simulated(c, at::kBFloat16, &test::simulated_fp8());
  std::vector<Gradients> exact;
  for (int seed = 0; seed < kBatches; ++seed) exact.push_back(plain.gradients(seed));
  const auto of_simulated = errors(exact, [&](int seed) { return simulated.gradients(seed); });
  auto tested = of_simulated, allowed = of_simulated;
  if (real) {
    Model as_it_trains(c, at::kBFloat16, &kernels::fp8_table(test::device()));
    tested = errors(exact, [&](int seed) { return as_it_trains.gradients(seed); });
  } else {
    allowed = errors(exact, [&](int seed) { return written_out(c, seed); });
  }
  std::string table = fmt::format("{:<60} {:>10} {:>12}\n", "errors, as shares of the exact gradient", "tested", "by rounding");
  for (const auto& [name, error] : tested) table += fmt::format("{:<60} {:>10.4f} {:>12.4f}\n", name, error, allowed.at(name));
  for (const auto& [name, error] : tested) EXPECT_LE(error, 1.2 * allowed.at(name)) << name << "\n" << table;
  for (const auto& [name, error] : tested) EXPECT_GT(error, 0.02) << name << ": the products were not those of 8 bits\n" << table;
  if (std::getenv("LOCKSTEP_FP8_TABLE")) std::printf("%s", table.c_str());
}

INSTANTIATE_TEST_SUITE_P(Models, Fp8Gradients,
                         testing::Values(Fp8Case{.name = "plain"}, Fp8Case{.name = "bias_and_head_norms", .bias = true},
                                         Fp8Case{.name = "lora", .bias = true, .lora = true},
                                         Fp8Case{.name = "dora", .bias = true, .lora = true, .dora = true}),
                         [](const auto& info) { return info.param.name; });

// Runs the device's kernels, and the simulation on a copy of what they were given. Every product of a step is on the list.
struct Compared {
  std::string what;
  double cosine;
};
std::vector<Compared>& compared() {
  static std::vector<Compared> list;
  return list;
}

at::Tensor view(const void* data, at::IntArrayRef sizes, at::ScalarType type) {
  return at::from_blob(const_cast<void*>(data), sizes, at::TensorOptions().dtype(type).device(test::device()));
}

double cosine(const at::Tensor& a, const at::Tensor& b) {
  const auto x = a.to(at::kDouble), y = b.to(at::kDouble);
  return ((x * y).sum() / (x.norm() * y.norm())).item<double>();
}

void measure_both(const kernels::Fp8Measure& a, kernels::Stream stream) {
  const auto simulated = at::zeros({8}, at::TensorOptions().dtype(at::kFloat).device(test::device()));
  kernels::Fp8Measure again = a;
  again.scale = static_cast<kernels::Fp8Scale*>(simulated.data_ptr());
  test::simulated_fp8().measure(again, stream);
  kernels::fp8_table(test::device()).measure(a, stream);
  const auto real = view(a.scale, {8}, at::kFloat);
  EXPECT_EQ(real[2].item<float>(), simulated[2].item<float>()) << "the scale of a tensor";
  EXPECT_EQ(real[4].item<float>(), simulated[4].item<float>()) << "its inverse";
}

void cast_both(const kernels::Fp8Cast& a, kernels::Stream stream) {
  kernels::fp8_table(test::device()).cast(a, stream);
  const auto bytes = at::zeros({a.rows, a.columns}, at::TensorOptions().dtype(at::kByte).device(test::device()));
  kernels::Fp8Cast again = a;
  again.out = bytes.data_ptr();
  again.transposed = nullptr;
  test::simulated_fp8().cast(again, stream);
  if (a.out) EXPECT_TRUE(at::equal(view(a.out, {a.rows, a.columns}, at::kByte), bytes)) << "a copy, bit by bit";
  if (a.transposed) EXPECT_TRUE(at::equal(view(a.transposed, {a.columns, a.rows}, at::kByte), bytes.t())) << "its transpose, bit by bit";
}

bool multiply_both(const kernels::Fp8Matmul& a, kernels::Stream stream) {
  const auto type = a.out_type == kernels::Type::f32 ? at::kFloat : at::kBFloat16;
  const auto out = view(a.out, {a.rows, a.out_stride}, type).narrow(1, 0, a.columns), before = out.clone();
  const auto simulated = at::zeros({a.rows, a.columns}, out.options().dtype(at::kFloat));
  kernels::Fp8Matmul again = a;
  again.out = simulated.data_ptr();
  again.out_stride = a.columns;
  again.out_type = kernels::Type::f32;
  again.accumulate = false;
  again.bias = nullptr;
  test::simulated_fp8().matmul(again, stream);
  if (!kernels::fp8_table(test::device()).matmul(a, stream)) return false;
  // What the product added, in f32: of sums that were rounded to bf16 it is known only to their rounding.
  auto expected = simulated + (a.accumulate ? before.to(at::kFloat) : at::zeros_like(simulated));
  if (a.bias) expected = expected + view(a.bias, {a.columns}, type).to(at::kFloat);
  const char* kind = a.left_format == kernels::Fp8::e4m3 ? "forward" : a.fast ? "input gradient" : "weight gradient";
  compared().push_back({fmt::format("{} {} x {} x {}", kind, a.rows, a.columns, a.inner), cosine(out, expected)});
  return true;
}

class Fp8StepProducts : public testing::TestWithParam<Fp8Case> {};

TEST_P(Fp8StepProducts, OfAStepAreThoseOfTheCastsSimulated) {
  if (!kernels::has_fp8(test::device())) GTEST_SKIP() << "needs a GPU of compute capability 8.9 or later: 8-bit products";
  static const kernels::Fp8Table both{.measure = measure_both, .cast = cast_both, .matmul = multiply_both};
  compared().clear();
  Model model(GetParam(), at::kBFloat16, &both);
  model.gradients(0);
  // Four a block forward, four for its inputs, four for its weights. Frozen weights have no gradient, nor what the first of them are
  // multiplied with; DoRA makes the products again.
  EXPECT_EQ(compared().size(), GetParam().dora ? 23u : GetParam().lora ? 15u : 24u);
  std::string table;
  for (const Compared& product : compared()) table += fmt::format("{:<44} {:.6f}\n", product.what, product.cosine);
  for (const Compared& product : compared()) EXPECT_GE(product.cosine, 0.9999) << product.what << "\n" << table;
}

INSTANTIATE_TEST_SUITE_P(Models, Fp8StepProducts,
                         testing::Values(Fp8Case{.name = "plain"}, Fp8Case{.name = "bias_and_head_norms", .bias = true},
                                         Fp8Case{.name = "lora", .bias = true, .lora = true},
                                         Fp8Case{.name = "dora", .bias = true, .lora = true, .dora = true}),
                         [](const auto& info) { return info.param.name; });

// ATen's casts, which the simulation and the kernels' tests rest on: to the nearest of the format's 256 values, of two equally near ones to
// the even code; and what is beyond the largest stays there.
TEST(Fp8Casts, AreToTheNearestValue) {
  const auto random = test::generator(3);
  for (const auto type : {at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    std::map<double, int> values;  // of the codes that are finite and not negative
    for (int code = 0; code < 128; ++code) {
      const double value = at::full({1}, code, at::kByte).view(type).to(at::kFloat).item<double>();
      if (std::isfinite(value)) values[value] = code;
    }
    const double largest = values.rbegin()->first;
    EXPECT_EQ(largest, type == at::kFloat8_e4m3fn ? 448 : 57344);
    auto numbers = at::randn({4000}, random) * at::randn({4000}, random).mul(3).exp();
    std::vector<at::Tensor> middles = {numbers.clamp(-largest, largest)};
    for (auto next = values.begin(); std::next(next) != values.end(); ++next)  // every tie
      middles.push_back(at::full({1}, (next->first + std::next(next)->first) / 2, at::kFloat));
    numbers = at::cat(middles);
    const auto codes = numbers.to(type).view(at::kByte);
    for (std::int64_t i = 0; i < numbers.numel(); ++i) {
      const double x = numbers[i].item<float>(), magnitude = std::abs(x);
      auto above = values.lower_bound(magnitude);
      auto below = above->first == magnitude ? above : std::prev(above);
      const double up = above->first - magnitude, down = magnitude - below->first;
      const int expected = up < down || (up == down && above->second % 2 == 0) ? above->second : below->second;
      ASSERT_EQ(codes[i].item<int>() & 127, expected) << x;
    }
  }
}

}  // namespace
}  // namespace lockstep::model
