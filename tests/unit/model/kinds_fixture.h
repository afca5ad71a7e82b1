// One model of every kind, run by a table of actions: whole, in stages that hand lists on, over whole units or over two slots.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "config/config.h"
#include "layout/spread/schedule.h"
#include "rank/kernels/fp8.h"
#include "support/reference/decoder_fixture.h"
#include "support/reference/simulated_fp8.h"
#include "support/reference/slot_store.h"

namespace lockstep::model::kinds {

// One of everything that a projection can be, and of what layers do beside it.
struct Case {
  std::string name;
  bool tied = false, rich = false, packed = false;  // rich: biases and head norms
  bool norms_behind = false;
  bool lora = false, dora = false, dropout = false;
  Quantization quantization = Quantization::none;
  bool fp8 = false;
};
inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

inline std::vector<Case> cases() {
  return {{.name = "dense"},
          {.name = "tied", .tied = true},
          {.name = "biases_and_head_norms", .rich = true},
          {.name = "packed", .packed = true},
          {.name = "norms_behind", .norms_behind = true},
          {.name = "norms_behind_lora", .norms_behind = true, .lora = true},
          {.name = "fp8", .fp8 = true},
          {.name = "lora", .lora = true},
          {.name = "lora_dropout_packed", .packed = true, .lora = true, .dropout = true},
          {.name = "lora_fp8", .lora = true, .fp8 = true},
          {.name = "dora", .rich = true, .lora = true, .dora = true},
          {.name = "dora_fp8", .lora = true, .dora = true, .fp8 = true},
          {.name = "nf4", .lora = true, .quantization = Quantization::nf4},
          {.name = "int8", .lora = true, .quantization = Quantization::int8},
          {.name = "dora_nf4", .lora = true, .dora = true, .quantization = Quantization::nf4}};
}

inline constexpr std::int64_t kMicroBatches = 4;
enum class Numbers { whole, slots };

struct Result {
  std::vector<double> losses;
  std::vector<at::Tensor> gradients;
  int opened = 0;
};

class Model {
 public:
  // cuts: layers that begin another stage.
  Model(const Case& c, Recompute policy, Numbers numbers, const std::vector<std::int64_t>& cuts = {}) : case_(c) {
    config_.hidden_size = 64;
    config_.num_layers = 3;
    config_.num_heads = 4;
    config_.kv_heads = 2;
    config_.intermediate_size = 96;
    config_.vocab_size = 96;
    config_.max_seq_len = 64;
    config_.initializer_range = 0.08;
    config_.tie_embeddings = c.tied;
    config_.qkv_bias = config_.qk_norm = c.rich;
    if (c.norms_behind) config_.family = config::Family::olmo2;
    if (c.norms_behind) config_.qk_norm = true;
    config_ = config::with_defaults(config_);
    lora_.enabled = c.lora;
    lora_.rank = 4;
    lora_.dora = c.dora;
    lora_.dropout = c.dropout ? 0.2 : 0;
    lora_.target_modules = {"all-linear"};
    const UnitStorage trained{.device = test::device(), .weight_dtype = at::kBFloat16, .gradient_dtype = at::kFloat};
    UnitStorage base = trained;
    base.trainable = !c.lora;
    base.quantization = c.quantization;
    units_ = test::make_units(config_, base);
    std::vector<Unit*> beside;
    if (c.lora) {
      for (auto& spec : adapter_units(config_, lora_)) adapters_.push_back(spec ? std::make_unique<Unit>(*spec, trained) : nullptr);
      for (std::size_t i = 0; i < adapters_.size(); ++i) {
        beside.push_back(adapters_[i].get());
        if (!adapters_[i]) continue;
        adapters_[i]->exact().copy_(at::randn({adapters_[i]->elements()}, test::generator(i)).mul_(0.05));
        adapters_[i]->refresh_weights();
      }
    }
    if (numbers == Numbers::slots)
      store_ = slots_ = new test::SlotStore(test::pointers(units_), beside);
    else
      store_ = new WholeStore(test::pointers(units_), beside);
    own_.reset(store_);
    for (std::size_t i = 0; i <= cuts.size(); ++i) add_stage({i == 0 ? 0 : cuts[i - 1], i == cuts.size() ? 3 : cuts[i]}, policy);
  }

  Result run(const std::vector<layout::Action>& schedule, std::size_t flights) {
    for (const auto& stage : stages_) stage->set_flights(flights);
    Result result;
    for (const auto& [what, flight] : schedule) {
      const std::size_t place = std::size_t(flight) % flights;
      if (what == layout::Do::forward)
        forward(input_of(flight), {.index = flight, .first = flight == 0, .last = flight + 1 == kMicroBatches}, place);
      else
        result.losses.push_back(backward(place));
    }
    for (const auto* list : {&units_, &adapters_})
      for (const auto& unit : *list)
        if (unit && unit->trainable()) result.gradients.push_back(unit->gradients().clone());
    result.opened = slots_ ? slots_->opened : 0;
    return result;
  }

 private:
  void add_stage(LayerRange range, Recompute policy) {
    auto& stage = *stages_.emplace_back(std::make_unique<Decoder>(config_, lora_, *store_, range));
    stage.reset_magnitudes();
    if (case_.fp8) stage.use_fp8(kernels::has_fp8(test::device()) ? kernels::fp8_table(test::device()) : test::simulated_fp8());
    stage.set_recompute(std::vector<Recompute>(std::size_t(range.end - range.begin), policy));
  }

  // As a pipeline would: what goes from stage to stage is copied, and what was sent is overwritten.
  void forward(const Input& input, const Micro& micro, std::size_t place) {
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      if (i > 0) {
        Border& sent = stages_[i - 1]->border(place);
        ASSERT_EQ(sent.streams.size(), 1u);
        ASSERT_FALSE(sent.streams.front().delta.defined()) << "one tensor per stream travels";
        stages_[i]->border(place).streams = {{sent.streams.front().residual.clone(), {}}};
        sent.streams.front().residual.fill_(NAN);
      }
      stages_[i]->forward(input, micro, place);
    }
  }
  double backward(std::size_t place) {
    const at::Tensor scale = at::full({}, 0.25, at::TensorOptions().dtype(at::kFloat).device(test::device()));
    const at::Tensor loss = stages_.back()->backward(scale, place);
    for (std::size_t i = stages_.size() - 1; i-- > 0;) {
      stages_[i]->gradient().streams = {stages_[i + 1]->gradient().streams.front().clone()};
      EXPECT_FALSE(stages_[i]->backward(scale, place).defined()) << "the loss is the last stage's";
    }
    return loss.item<double>();
  }

  // No two alike: what is taken from another flight shows.
  Input input_of(std::int64_t seed) const {
    const auto device = test::device();
    const auto batch = test::random_batch({.vocab = config_.vocab_size, .batch = 2, .time = 16, .ignored = 5}, int(seed), device);
    Input input{.tokens = batch.tokens, .targets = batch.targets};
    const auto cut = std::int32_t(3 + 2 * seed);
    if (case_.packed) input.starts = at::tensor({0, cut, 16, 16 + cut, 32}, at::kInt);
    if (case_.dropout) input.keys = at::arange(7 + 2 * seed, 9 + 2 * seed, at::kLong).to(device);
    return input;
  }

  Case case_;
  config::ModelConfig config_;
  config::LoraConfig lora_;
  std::vector<std::unique_ptr<Unit>> units_, adapters_;
  WholeStore* store_ = nullptr;
  test::SlotStore* slots_ = nullptr;
  std::unique_ptr<WholeStore> own_;
  std::vector<std::unique_ptr<Decoder>> stages_;
};

inline void expect_same_bits(const Result& a, const Result& b) {
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (std::size_t i = 0; i < a.gradients.size(); ++i) EXPECT_TRUE(at::equal(a.gradients[i], b.gradients[i])) << "trained unit " << i;
}

// F0 F1 B0 B1 F2 F3 B2 B3.
inline std::vector<layout::Action> two_at_once() {
  using enum layout::Do;
  return {{forward, 0}, {forward, 1}, {backward, 0}, {backward, 1}, {forward, 2}, {forward, 3}, {backward, 2}, {backward, 3}};
}

inline constexpr std::array kPolicies{Recompute::none, Recompute::norms, Recompute::qkv, Recompute::blocks};

}  // namespace lockstep::model::kinds
