// Adapters against the whole model: a decoder with adapters must give the loss of one whose matrices have them folded in, and the
// gradients that follow from that one's by the chain rule.
#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "layout/adapters/adapter_targets.h"
#include "rank/model/projection/adapter.h"
#include "support/reference/decoder_fixture.h"

namespace lockstep::model {
namespace {

struct AdapterCase {
  std::string name;
  config::LoraConfig lora;
  std::function<void(config::ModelConfig&)> change = [](config::ModelConfig&) {};
  Recompute keep = Recompute::none;
};

config::ModelConfig tiny() {
  config::ModelConfig c;
  c.hidden_size = 64;
  c.num_layers = 2;
  c.num_heads = 4;
  c.kv_heads = 2;
  c.intermediate_size = 96;
  c.vocab_size = 101;
  c.max_seq_len = 32;
  c.initializer_range = 0.08;
  return c;
}

config::LoraConfig lora(std::vector<std::string> targets = {"all-linear"}, std::int64_t rank = 4) {
  config::LoraConfig l;
  l.enabled = true;
  l.rank = rank;
  l.alpha = 6;
  l.target_modules = std::move(targets);
  return l;
}

template <typename F>
config::LoraConfig with(config::LoraConfig l, F change) {
  change(l);
  return l;
}

void by_name_pattern(config::LoraConfig& l) {
  l.target_modules = {R"(re:.*\.(self_attn\.[qkvo]_proj|mlp\.(gate|up)_proj))"};
  l.exclude_modules = {"layers.1.self_attn.k_proj"};
  l.rank_pattern = {"q_proj=2", R"(layers\.0\.mlp\.up_proj=3)"};
  l.alpha_pattern = {"v_proj=9", "gate_proj=1.5"};
}

std::vector<AdapterCase> adapter_cases() {
  return {
      {.name = "all_linear", .lora = lora()},
      {.name = "query_and_value", .lora = lora({"q_proj", "v_proj"}, 3)},
      {.name = "up_alone", .lora = lora({"mlp.up_proj"})},
      {.name = "rslora", .lora = with(lora(), [](auto& l) { l.rslora = true; })},
      {.name = "one_layer", .lora = with(lora(), [](auto& l) { l.layers_to_transform = {1}; })},
      {.name = "dora", .lora = with(lora(), [](auto& l) { l.dora = true; })},
      {.name = "dora_some", .lora = with(lora({"k_proj", "down_proj"}), [](auto& l) { l.dora = true; })},
      {.name = "ranks_by_name", .lora = with(lora(), by_name_pattern)},
      {.name = "dora_ranks_by_name", .lora = with(with(lora(), by_name_pattern), [](auto& l) { l.dora = true; })},
      {.name = "ranks_by_name_made_again", .lora = with(lora(), by_name_pattern), .keep = Recompute::qkv},
      {.name = "bias_and_head_norms", .lora = lora(), .change = [](auto& c) { c.qkv_bias = c.qk_norm = true; }},
      {.name = "dora_bias", .lora = with(lora(), [](auto& l) { l.dora = true; }), .change = [](auto& c) { c.qkv_bias = true; }},
      {.name = "norms_made_again", .lora = lora(), .keep = Recompute::norms},
      {.name = "qkv_made_again", .lora = lora(), .keep = Recompute::qkv},
      {.name = "blocks_made_again", .lora = lora(), .keep = Recompute::blocks},
      {.name = "dora_made_again", .lora = with(lora(), [](auto& l) { l.dora = true; }), .keep = Recompute::blocks},
      {.name = "dora_qkv_made_again", .lora = with(lora(), [](auto& l) { l.dora = true; }), .keep = Recompute::qkv},
      {.name = "whole_modules", .lora = with(lora({"q_proj"}), [](auto& l) { l.modules_to_save = {"embed_tokens", "lm_head"}; })},
      {.name = "whole_head_untied",
       .lora = with(lora({"q_proj"}), [](auto& l) { l.modules_to_save = {"lm_head"}; }),
       .change = [](auto& c) { c.tie_embeddings = false; }},
  };
}

at::Tensor drawn(at::IntArrayRef sizes, int seed, double std) {
  return at::normal(0.0, std, sizes, test::generator(std::uint64_t(seed))).to(test::device());
}

// Adapters with every number drawn, so that nothing hides behind zeros.
std::vector<std::unique_ptr<Unit>> drawn_adapters(const config::ModelConfig& model, const config::LoraConfig& lora,
                                                  at::ScalarType type = at::kFloat) {
  std::vector<std::unique_ptr<Unit>> units;
  int seed = 5;
  for (auto& spec : adapter_units(model, lora)) {
    if (!spec) {
      units.push_back(nullptr);
      continue;
    }
    units.push_back(std::make_unique<Unit>(std::move(*spec), UnitStorage{.device = test::device(), .weight_dtype = type}));
    for (std::size_t leaf = 0; leaf < units.back()->spec().leaves.size(); ++leaf) {
      const auto& weight = units.back()->weight(leaf);
      const auto numbers = drawn(weight.sizes(), ++seed, 0.1);
      weight.copy_(weight.dim() == 1 ? numbers.abs().add(0.3) : numbers);  // magnitudes are positive
    }
  }
  return units;
}

std::map<std::string, at::Tensor> by_name(const std::vector<std::unique_ptr<Unit>>& units, const at::Tensor& (Unit::*flat)() const) {
  std::map<std::string, at::Tensor> all;
  for (const auto& unit : units) {
    if (!unit || !(unit.get()->*flat)().defined()) continue;
    for (auto& [name, view] : unit->pieces_of((unit.get()->*flat)())) all[name] = view;
  }
  return all;
}

// One adapted matrix: what it is folded to, and its gradients from the folded matrix's.
struct Folded {
  at::Tensor sum, norm, gain, folded;
  at::Tensor a, b;
  double scale;
  bool dora;

  Folded(const at::Tensor& weight, const std::map<std::string, at::Tensor>& adapters, const std::string& module,
         const config::LoraConfig& l)
      : a(adapters.at(module + ".lora_A.weight")),
        b(adapters.at(module + ".lora_B.weight")),
        scale(layout::AdapterTargets(l).scale(module.substr(std::string_view("base_model.model.").size()))),
        dora(l.dora) {
    sum = weight + scale * b.mm(a);
    norm = at::linalg_vector_norm(sum, 2, {1});
    gain = dora ? adapters.at(module + ".lora_magnitude_vector") / norm : at::ones_like(norm);
    folded = gain.unsqueeze(1) * sum;
  }
  at::Tensor da(const at::Tensor& dfolded) const { return scale * b.t().mm(gain.unsqueeze(1) * dfolded); }
  at::Tensor db(const at::Tensor& dfolded) const { return scale * (gain.unsqueeze(1) * dfolded).mm(a.t()); }
  at::Tensor dmagnitude(const at::Tensor& dfolded) const { return (dfolded * sum).sum(1) / norm; }
};

void expect_near(const at::Tensor& got, const at::Tensor& expected, const std::string& what) {
  ASSERT_TRUE(got.defined() && expected.defined()) << what;
  const double size = expected.abs().max().item<double>() + 1e-12;
  EXPECT_LT((got - expected).abs().max().item<double>() / size, 2e-5) << what;
}

class Adapters : public testing::TestWithParam<AdapterCase> {};

TEST_P(Adapters, EqualTheFoldedModel) {
  const AdapterCase& c = GetParam();
  config::ModelConfig model = tiny();
  c.change(model);
  const auto device = test::device();
  const auto scale = at::full({}, 1.0 / 64, at::TensorOptions().dtype(at::kFloat).device(device));
  const auto [tokens, targets] = test::random_batch({.vocab = model.vocab_size, .batch = 3, .time = 14, .ignored = 4}, 1, device);

  auto adapters = drawn_adapters(model, c.lora);
  auto frozen = test::make_units(model, {.device = device, .trainable = false});
  Decoder adapted(model, test::pointers(frozen), c.lora, test::pointers(adapters));
  adapted.set_recompute(std::vector<Recompute>(std::size_t(model.num_layers), c.keep));
  const auto loss = adapted.forward_backward(tokens, targets, scale);
  EXPECT_NEAR(adapted.loss_sum(tokens, targets).item<float>(), loss.item<float>(), 2e-6 * loss.item<float>());

  // The same matrices folded into a model that is trained whole. A module trained whole unties what was tied.
  config::ModelConfig whole = model;
  const auto numbers = by_name(adapters, &Unit::weights);
  const std::string prefix = "base_model.model.";
  if (numbers.count(prefix + "lm_head.weight")) whole.tie_embeddings = false;
  auto units = test::make_units(whole, {.device = device});
  const auto base = by_name(frozen, &Unit::weights);
  std::map<std::string, Folded> folded;
  for (auto& [name, view] : by_name(units, &Unit::weights)) {
    const std::string module = prefix + name.substr(0, name.size() - std::string(".weight").size());
    const auto original = base.count(name) ? base.at(name) : base.at("model.embed_tokens.weight");
    view.copy_(numbers.count(prefix + name) ? numbers.at(prefix + name) : original);
    if (!numbers.count(module + ".lora_A.weight")) continue;
    view.copy_(folded.emplace(name, Folded(original, numbers, module, c.lora)).first->second.folded);
  }
  Decoder reference(whole, test::pointers(units));
  const auto expected = reference.forward_backward(tokens, targets, scale);
  EXPECT_NEAR(loss.item<float>(), expected.item<float>(), 2e-6 * std::abs(expected.item<float>()));

  const auto gradients = by_name(adapters, &Unit::gradients), references = by_name(units, &Unit::gradients);
  std::size_t compared = 0;
  for (const auto& [name, matrix] : folded) {
    const std::string module = prefix + name.substr(0, name.size() - std::string(".weight").size());
    expect_near(gradients.at(module + ".lora_A.weight"), matrix.da(references.at(name)), module + " A");
    expect_near(gradients.at(module + ".lora_B.weight"), matrix.db(references.at(name)), module + " B");
    compared += 2;
    if (!c.lora.dora) continue;
    expect_near(gradients.at(module + ".lora_magnitude_vector"), matrix.dmagnitude(references.at(name)), module + " magnitude");
    ++compared;
  }
  for (const std::string name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    if (!gradients.count(prefix + name)) continue;
    expect_near(gradients.at(prefix + name), references.at(name), name);
    ++compared;
  }
  EXPECT_EQ(compared, gradients.size());
}

INSTANTIATE_TEST_SUITE_P(Table, Adapters, testing::ValuesIn(adapter_cases()), [](const auto& info) { return info.param.name; });

// As many rows as it takes for SwiGLU to be part of its matmuls, where a device can do that.
TEST(AdapterTypes, InSixteenBitsPointWhereTheyPointInF32) {
  config::ModelConfig model = tiny();
  model.intermediate_size = 328;
  const auto device = test::device();
  const auto [tokens, targets] = test::random_batch({.vocab = model.vocab_size, .batch = 20, .time = 32, .ignored = 7}, 1, device);
  const auto scale = at::full({}, 1.0 / 64, at::TensorOptions().dtype(at::kFloat).device(device));
  const auto gradients_in = [&](at::ScalarType type, const config::LoraConfig& l, Recompute keep) {
    auto frozen = test::make_units(model, {.device = device, .weight_dtype = type, .trainable = false});
    auto adapters = drawn_adapters(model, l, type);
    for (const auto* units : {&frozen, &adapters})
      for (const auto& unit : *units)
        for (std::size_t leaf = 0; unit && leaf < unit->spec().leaves.size(); ++leaf)  // both types have the same numbers
          unit->weight(leaf).copy_(unit->weight(leaf).to(at::kBFloat16));
    Decoder decoder(model, test::pointers(frozen), l, test::pointers(adapters));
    decoder.set_recompute(std::vector<Recompute>(std::size_t(model.num_layers), keep));
    decoder.forward_backward(tokens, targets, scale);
    std::map<std::string, at::Tensor> gradients;
    for (const auto& [name, view] : by_name(adapters, &Unit::gradients)) gradients[name] = view.to(at::kDouble).clone();
    return gradients;
  };
  for (const auto& targets_of : {std::vector<std::string>{"all-linear"}, {"up_proj", "q_proj"}, {"gate_proj", "up_proj"}, {"down_proj"}})
    for (const auto keep : {Recompute::none, Recompute::norms, Recompute::blocks}) {
      const auto l = lora(targets_of, 8);
      const auto exact = gradients_in(at::kFloat, l, keep), rounded = gradients_in(at::kBFloat16, l, keep);
      for (const auto& [name, expected] : exact) {
        const auto& got = rounded.at(name);
        const double cosine = ((got * expected).sum() / (got.norm() * expected.norm())).item<double>();
        EXPECT_GT(cosine, 0.999) << name << ", policy " << int(keep) << ", first target " << targets_of[0];
        EXPECT_NEAR((got.norm() / expected.norm()).item<double>(), 1, 0.02) << name;
      }
    }
}

TEST(AdapterMagnitudes, StartWhereTheyChangeNothing) {
  const config::ModelConfig model = tiny();
  const auto l = with(lora(), [](auto& x) { x.dora = true; });
  auto frozen = test::make_units(model, {.device = test::device(), .trainable = false});
  std::vector<std::unique_ptr<Unit>> adapters;
  for (auto& spec : adapter_units(model, l))
    adapters.push_back(spec ? std::make_unique<Unit>(std::move(*spec), UnitStorage{.device = test::device()}) : nullptr);
  initialize(adapters, 3);
  const auto [tokens, targets] = test::random_batch({.vocab = model.vocab_size, .batch = 2, .time = 9, .ignored = 0}, 1, test::device());
  Decoder plain(model, test::pointers(frozen)), adapted(model, test::pointers(frozen), l, test::pointers(adapters));
  adapted.reset_magnitudes();
  EXPECT_LT((plain.logits(tokens) - adapted.logits(tokens)).abs().max().item<float>(), 1e-5);
}

// Which elements fall depends on keys alone: the loss is a function of the adapters, and its slope must be what backward says.
TEST(AdapterDropout, GradientIsTheSlopeOfTheLoss) {
  const config::ModelConfig model = tiny();
  const auto l = with(lora(), [](auto& x) { x.dropout = 0.4; });
  const auto device = test::device();
  auto frozen = test::make_units(model, {.device = device, .trainable = false});
  auto adapters = drawn_adapters(model, l);
  Decoder decoder(model, test::pointers(frozen), l, test::pointers(adapters));
  const auto one = at::ones({}, at::TensorOptions().dtype(at::kFloat).device(device));
  const auto [tokens, targets] = test::random_batch({.vocab = model.vocab_size, .batch = 2, .time = 12, .ignored = 0}, 1, device);
  const auto keys = at::arange(7, 9, at::kLong).to(device);
  const Input input{.tokens = tokens, .targets = targets, .keys = keys};
  const float loss = decoder.forward_backward(input, one).item<float>();
  EXPECT_EQ(loss, decoder.forward_backward(input, one).item<float>()) << "the same keys drop the same elements";
  EXPECT_NE(loss, decoder.forward_backward({.tokens = tokens, .targets = targets, .keys = keys + 1}, one).item<float>());
  EXPECT_NE(loss, decoder.loss_sum(input).item<float>()) << "evaluation drops nothing";

  for (auto& unit : adapters)
    if (unit) unit->gradients().zero_();
  decoder.forward_backward(input, one);
  double slope = 0;
  std::vector<at::Tensor> directions;
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    if (!adapters[i]) continue;
    directions.push_back(drawn(adapters[i]->weights().sizes(), 90 + int(i), 1));
    slope += (directions.back() * adapters[i]->gradients()).sum().item<double>();
  }
  const auto moved = [&](double by) {
    std::size_t at = 0;
    for (auto& unit : adapters)
      if (unit) unit->weights().add_(directions[at++], by);
    const double value = decoder.forward_backward(input, one).item<double>();
    at = 0;
    for (auto& unit : adapters)
      if (unit) unit->weights().sub_(directions[at++], by);
    return value;
  };
  const double step = 2e-4, measured = (moved(step) - moved(-step)) / (2 * step);
  EXPECT_NEAR(measured, slope, 0.02 * std::abs(slope) + 0.05);
}

TEST(AdapterTargets, MistakesAreNamed) {
  const config::ModelConfig model = tiny();
  const auto message = [&](const config::LoraConfig& l) -> std::string {
    std::string all;
    for (const layout::TargetMistake& mistake : layout::target_mistakes(model, l)) all += mistake.text;
    return all;
  };
  EXPECT_NE(message(lora({"w1"})).find("w1"), std::string::npos);
  EXPECT_NE(message(lora({"lm_head"})).find("modules_to_save"), std::string::npos);
  EXPECT_NE(message(with(lora(), [](auto& l) { l.layers_to_transform = {2}; })).find("block 2"), std::string::npos);
  EXPECT_NE(message(with(lora(), [](auto& l) { l.modules_to_save = {"norm"}; })).find("norm"), std::string::npos);
  EXPECT_NE(message(lora({"re:.*lm_head"})).find("lm_head"), std::string::npos);
  EXPECT_NE(message(lora({"re:.*q_proj", "v_proj"})).find("beside other entries"), std::string::npos);
  EXPECT_EQ(message(lora()), "");
  EXPECT_THROW(adapter_units(model, lora({"re:nothing"})), base::UserError);
}

// Records packed into rows against the same records one by one.
TEST(Packing, EqualsOneRecordAtATime) {
  for (const bool head_norms : {false, true}) {
    config::ModelConfig model = tiny();
    model.qk_norm = head_norms;
    const auto device = test::device();
    const auto one = at::ones({}, at::TensorOptions().dtype(at::kFloat).device(device));
    const auto [tokens, targets] = test::random_batch({.vocab = model.vocab_size, .batch = 2, .time = 16, .ignored = 3}, 1, device);
    const std::vector<std::int32_t> starts = {0, 5, 12, 16, 17, 32};

    auto packed_units = test::make_units(model, {.device = device});
    Decoder packed(model, test::pointers(packed_units));
    const Input input{.tokens = tokens,
                      .targets = targets,
                      .starts = at::from_blob(const_cast<std::int32_t*>(starts.data()), {std::int64_t(starts.size())}, at::kInt)};
    const float loss = packed.forward_backward(input, one).item<float>();
    EXPECT_NEAR(loss, packed.loss_sum(input).item<float>(), 1e-3);

    auto single_units = test::make_units(model, {.device = device});
    Decoder single(model, test::pointers(single_units));
    float sum = 0;
    for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
      const auto part = [&](const at::Tensor& all) {
        return all.reshape({-1}).narrow(0, starts[i], starts[i + 1] - starts[i]).unsqueeze(0).contiguous();
      };
      sum += single.forward_backward(part(tokens), part(targets), one).item<float>();
    }
    EXPECT_NEAR(loss, sum, 1e-3 * std::abs(sum));
    for (std::size_t u = 0; u < single_units.size(); ++u)
      expect_near(packed_units[u]->gradients(), single_units[u]->gradients(), single_units[u]->name());
  }
}

}  // namespace
}  // namespace lockstep::model
