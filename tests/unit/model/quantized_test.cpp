// Frozen quantized matrices: a model over them is, bit for bit, the model over the weights they stand for.
#include "rank/model/weights/quantized.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "config/run_config.h"
#include "rank/model/projection/adapter.h"
#include "support/reference/decoder_fixture.h"

namespace lockstep::model {
namespace {

// k and v have 24 x 40 = 960 weights, a multiple of 64; q 40 x 40 = 1600 is one too; the others (40 x 100) end in a short block.
config::ModelConfig small_model() {
  config::ModelConfig c;
  c.hidden_size = 40;
  c.num_layers = 2;
  c.num_heads = 5;
  c.kv_heads = 5;
  c.head_dim = 8;
  c.intermediate_size = 100;
  c.vocab_size = 61;
  c.max_seq_len = 32;
  c.tie_embeddings = false;
  c.qkv_bias = true;
  return c;
}

config::LoraConfig small_lora(bool dora) {
  config::LoraConfig lora;
  lora.enabled = true;
  lora.rank = 4;
  lora.dora = dora;
  return lora;
}

struct QuantizedModel {
  std::vector<std::unique_ptr<Unit>> units, adapters;
  std::unique_ptr<Decoder> decoder;

  QuantizedModel(const config::ModelConfig& config, const config::LoraConfig& lora, const UnitStorage& frozen) {
    units = test::make_units(config, frozen);
    UnitStorage trained = frozen;
    trained.trainable = true;
    for (auto& spec : adapter_units(config, lora)) adapters.push_back(spec ? std::make_unique<Unit>(*spec, trained) : nullptr);
    initialize(adapters, 5);
    decoder = std::make_unique<Decoder>(config, test::pointers(units), lora, test::pointers(adapters));
  }
  // B starts at zero, which hides most of an adapter's gradient.
  void stir() {
    for (const auto& unit : adapters) {
      if (!unit) continue;
      const auto noise = at::randn({unit->elements()}, test::generator(3)).mul_(0.05).to(unit->weights().device());
      unit->weights().add_(noise);
      if (!unit->master().is_same(unit->weights())) unit->master().copy_(unit->weights());
    }
    decoder->reset_magnitudes();
  }
  at::Tensor gradients() const {
    std::vector<at::Tensor> all;
    for (const auto& unit : adapters) {
      if (unit) all.push_back(unit->gradients().to(at::kFloat));
    }
    return at::cat(all);
  }
};

UnitStorage frozen_as(Quantization quantization, at::ScalarType dtype = at::kFloat, bool double_quant = true) {
  return {.device = test::device(),
          .weight_dtype = dtype,
          .gradient_dtype = dtype,
          .trainable = false,
          .quantization = quantization,
          .double_quant = double_quant};
}

// What the quantized units stand for, in units that hold it whole.
void copy_dense(const QuantizedModel& from, const QuantizedModel& to) {
  at::Tensor buffer;
  for (std::size_t u = 0; u < from.units.size(); ++u) {
    const Unit &quantized = *from.units[u], &dense = *to.units[u];
    for (std::size_t leaf = 0; leaf < dense.spec().leaves.size(); ++leaf) {
      const QuantizedMatrix* matrix = quantized.quantized(leaf);
      dense.weight(leaf).copy_(matrix ? matrix->dense(buffer) : quantized.weight(leaf));
    }
  }
}

void expect_the_model_it_stands_for(const config::ModelConfig& config, const config::LoraConfig& lora, const UnitStorage& storage,
                                    std::int64_t samples) {
  UnitStorage plain = storage;
  plain.quantization = Quantization::none;
  QuantizedModel few(config, lora, storage), whole(config, lora, plain);
  copy_dense(few, whole);
  few.stir();
  whole.stir();
  const auto batch = test::random_batch({.vocab = config.vocab_size, .batch = samples, .ignored = 5}, 1, test::device());
  const auto scale = at::ones({}, at::TensorOptions().device(test::device()));
  EXPECT_TRUE(at::equal(few.decoder->logits(batch.tokens), whole.decoder->logits(batch.tokens)));
  const auto loss = few.decoder->forward_backward(batch.tokens, batch.targets, scale);
  EXPECT_TRUE(at::equal(loss, whole.decoder->forward_backward(batch.tokens, batch.targets, scale)));
  EXPECT_TRUE(at::equal(few.gradients(), whole.gradients()));
  EXPECT_GT(few.gradients().abs().max().item<double>(), 0);
}

TEST(Quantized, TrainingEqualsTrainingOnTheWeightsItStandsFor) {
  const test::Deterministic deterministic;
  for (const auto quantization : {Quantization::nf4, Quantization::int8})
    for (const bool dora : {false, true})
      for (const bool double_quant : {true, false}) {
        SCOPED_TRACE(fmt::format("{}, dora {}, double_quant {}", int(quantization), dora, double_quant));
        expect_the_model_it_stands_for(small_model(), small_lora(dora), frozen_as(quantization, at::kFloat, double_quant), 2);
      }
}

// As many rows as it takes for SwiGLU to be part of its matmuls, where a device can do that.
TEST(Quantized, ManyRowsInSixteenBitsToo) {
  const test::Deterministic deterministic;
  auto config = small_model();
  config.intermediate_size = 104;
  auto lora = small_lora(false);
  lora.rank = 8;
  for (const auto quantization : {Quantization::nf4, Quantization::int8})
    expect_the_model_it_stands_for(config, lora, frozen_as(quantization, at::kBFloat16), 40);
}

TEST(Quantized, RecomputingGivesTheSameBits) {
  const test::Deterministic deterministic;
  const auto config = small_model();
  const auto lora = small_lora(false);
  const auto batch = test::random_batch({.vocab = config.vocab_size}, 2, test::device());
  const auto scale = at::ones({}, at::TensorOptions().device(test::device()));
  at::Tensor loss, gradients;
  for (const auto keep : {Recompute::none, Recompute::norms, Recompute::qkv, Recompute::blocks}) {
    QuantizedModel model(config, lora, frozen_as(Quantization::nf4));
    model.stir();
    model.decoder->set_recompute(std::vector(std::size_t(config.num_layers), keep));
    const auto this_loss = model.decoder->forward_backward(batch.tokens, batch.targets, scale);
    if (!loss.defined()) {
      loss = this_loss;
      gradients = model.gradients();
      continue;
    }
    EXPECT_TRUE(at::equal(this_loss, loss));
    EXPECT_TRUE(at::equal(model.gradients(), gradients));
  }
}

TEST(Quantized, UnitsHoldCodesAndNothingElse) {
  config::ModelConfig config = small_model();
  config.hidden_size = config.intermediate_size = 256;
  config.num_heads = config.kv_heads = 4;
  config.head_dim = 64;
  const auto lora = small_lora(false);
  constexpr std::int64_t weights = 256 * 256, blocks = weights / 64, plain = 5 * 256;  // of one matrix; of norms and biases
  struct Case {
    Quantization quantization;
    bool double_quant;
    std::int64_t bytes;  // of one matrix
  };
  for (const auto& [quantization, double_quant, bytes] :
       std::vector<Case>{{Quantization::nf4, true, weights / 2 + blocks + blocks / 256 * 4 + 256 * 4},
                         {Quantization::nf4, false, weights / 2 + blocks * 4},
                         {Quantization::int8, true, weights + blocks * 4},
                         {Quantization::none, true, weights * 2}}) {
    QuantizedModel model(config, lora, frozen_as(quantization, at::kBFloat16, double_quant));
    const Unit& block = *model.units[1];
    EXPECT_EQ(block.bytes(), 7 * bytes + plain * 2);
    EXPECT_FALSE(block.trainable());
    if (quantization == Quantization::none) continue;
    EXPECT_EQ(block.elements(), plain) << "the flat buffer holds norms and biases alone";
    EXPECT_FALSE(block.weight(0).defined());
    EXPECT_EQ(block.pieces_of(block.weights()).size(), 5u);
    EXPECT_TRUE(model.units[0]->weight(0).defined()) << "the embedding stays whole";
    EXPECT_TRUE(model.units.back()->weight(0).defined()) << "and so does the head";
  }
}

TEST(Quantized, AMatrixTakesAnyTypeFromAnyDevice) {
  const LeafSpec leaf{.name = "m", .pieces = {{"a", {5, 70}}, {"b", {3, 70}}}};
  const auto storage = frozen_as(Quantization::nf4, at::kBFloat16);
  QuantizedMatrix from_f32(leaf, storage), from_bf16(leaf, storage);
  for (std::size_t piece = 0; piece < 2; ++piece) {
    const auto weights = at::randn({leaf.pieces[piece].shape}, test::generator(piece));
    from_f32.store(piece, weights);
    from_bf16.store(piece, weights.to(at::kBFloat16).to(test::device()));
  }
  at::Tensor a, b;
  EXPECT_TRUE(at::equal(from_f32.dense(a), from_bf16.dense(b))) << "rounded to the model's type before it is quantized";
  EXPECT_EQ(a.sizes(), (std::vector<std::int64_t>{8, 70}));
}

TEST(Quantized, ABufferServesMatricesOfEverySize) {
  const auto storage = frozen_as(Quantization::nf4);
  at::Tensor buffer;
  const void* largest = nullptr;
  for (const std::int64_t rows : {4, 64, 8, 1, 64}) {
    const LeafSpec leaf{.name = "m", .pieces = {{"a", {rows, 32}}}};
    QuantizedMatrix matrix(leaf, storage);
    matrix.store(0, at::ones({rows, 32}));
    const auto& dense = matrix.dense(buffer);
    EXPECT_EQ(dense.sizes(), (std::vector<std::int64_t>{rows, 32}));
    EXPECT_EQ(dense.sum().item<double>(), double(rows) * 32) << "ones survive: the largest level is exact";
    if (rows == 64 && largest == nullptr) largest = buffer.data_ptr();
    if (largest != nullptr) {
      EXPECT_EQ(buffer.data_ptr(), largest) << "memory is made once";
    }
  }
}

}  // namespace
}  // namespace lockstep::model
