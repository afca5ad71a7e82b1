// Decoding with a cache against a forward over the whole sequence, over the shapes a model may have.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "rank/model/projection/adapter.h"
#include "rank/model/decode_cache.h"
#include "support/reference/decoder_fixture.h"

namespace lockstep::model {
namespace {

struct DecodeCase {
  std::string name;
  std::int64_t heads = 4, kv_heads = 4, head_dim = 0;
  bool tied = true, bias = false, head_norms = false, lora = false, dora = false, norms_behind = false;
  at::ScalarType dtype = at::kFloat;

  config::ModelConfig config() const {
    config::ModelConfig c;
    c.hidden_size = 64;
    c.num_layers = 2;
    c.num_heads = heads;
    c.kv_heads = kv_heads;
    c.head_dim = head_dim;
    c.vocab_size = 97;
    c.max_seq_len = 96;
    c.initializer_range = 0.08;
    c.tie_embeddings = tied;
    c.qkv_bias = bias;
    c.qk_norm = head_norms || norms_behind;
    if (norms_behind) c.family = config::Family::olmo2;
    return c;
  }
};

// A decoder over random weights, with adapters that change something where the case asks for them.
struct DecodedModel {
  config::ModelConfig config;
  config::LoraConfig lora;
  std::vector<std::unique_ptr<Unit>> units, adapters;
  std::unique_ptr<Decoder> decoder;

  explicit DecodedModel(const DecodeCase& c) : config(c.config()) {
    const UnitStorage storage{.device = test::device(), .weight_dtype = c.dtype, .trainable = false};
    units = test::make_units(config, storage);
    std::vector<Unit*> beside;
    if (c.lora) {
      lora = {.enabled = true, .rank = 4, .dora = c.dora};
      for (auto& spec : adapter_units(config, lora)) adapters.push_back(spec ? std::make_unique<Unit>(*spec, storage) : nullptr);
      auto random = test::generator(3);
      for (auto& unit : adapters) {
        if (unit) unit->weights().copy_(at::randn(unit->weights().sizes(), random, at::kFloat).mul_(0.1));
        beside.push_back(unit.get());
      }
    }
    decoder = std::make_unique<Decoder>(config, test::pointers(units), lora, beside);
    if (c.dora) decoder->reset_magnitudes();
  }
};

// Sequences of different lengths, fed in pieces; every answer is compared with the logits of a plain forward.
class Sequences {
 public:
  Sequences(DecodedModel& model, std::int64_t batch, double tolerance)
      : model_(model), cache_(model.decoder->make_cache(batch)), tokens_(std::size_t(batch)), tolerance_(tolerance) {}

  DecodeCache& cache() { return cache_; }
  void forget(std::size_t row, std::int64_t length) {
    tokens_[row].resize(std::size_t(length));
    cache_.cut(std::int64_t(row), length);
  }
  void keep(const std::vector<std::int64_t>& rows) {
    std::vector<std::vector<std::int64_t>> kept;
    for (const auto row : rows) kept.push_back(tokens_[std::size_t(row)]);
    tokens_ = kept;
    cache_.keep(rows);
  }

  void feed(const std::vector<std::int64_t>& counts) {
    const auto longest = *std::max_element(counts.begin(), counts.end());
    at::Tensor input = at::full({std::int64_t(counts.size()), longest}, 5, at::kLong);
    for (std::size_t row = 0; row < counts.size(); ++row) {
      for (std::int64_t i = 0; i < counts[row]; ++i) {
        const auto token = std::int64_t((tokens_[row].size() * 31 + row * 17 + 7) % std::size_t(model_.config.vocab_size));
        tokens_[row].push_back(token);
        input[std::int64_t(row)][i].fill_(token);
      }
    }
    const bool level = std::all_of(counts.begin(), counts.end(), [&](auto c) { return c == longest; });
    const auto logits = model_.decoder->decode(input.to(test::device()), cache_, level ? std::span<const std::int64_t>{} : counts);
    for (std::size_t row = 0; row < counts.size(); ++row) {
      ASSERT_EQ(cache_.lengths()[row], std::int64_t(tokens_[row].size()));
      const auto whole = at::tensor(tokens_[row], at::kLong).unsqueeze(0).to(test::device());
      const auto expected = model_.decoder->logits(whole)[0][-1].to(at::kFloat);
      const auto difference = (logits[std::int64_t(row)].to(at::kFloat) - expected).abs().max().item<double>();
      EXPECT_LE(difference, tolerance_ * expected.abs().max().item<double>()) << "row " << row << " after " << tokens_[row].size();
    }
  }

 private:
  DecodedModel& model_;
  DecodeCache cache_;
  std::vector<std::vector<std::int64_t>> tokens_;
  double tolerance_;
};

class Decoding : public testing::TestWithParam<DecodeCase> {};

TEST_P(Decoding, EqualsAWholeForward) {
  DecodedModel model(GetParam());
  Sequences sequences(model, 3, GetParam().dtype == at::kFloat ? 1e-5 : 4e-2);
  sequences.feed({5, 9, 2});  // prompts
  for (int i = 0; i < 4; ++i) sequences.feed({1, 1, 1});
  sequences.feed({3, 1, 6});  // a second turn
  sequences.forget(1, 4);
  sequences.feed({1, 1, 1});
  sequences.keep({2, 1});
  sequences.feed({2, 7});
  sequences.feed({1, 1});
}

TEST_P(Decoding, OneSequence) {
  DecodedModel model(GetParam());
  Sequences sequences(model, 1, GetParam().dtype == at::kFloat ? 1e-5 : 4e-2);
  sequences.feed({1});
  for (int i = 0; i < 70; ++i) {  // past the first growth of the cache
    sequences.feed({1});
  }
  sequences.feed({12});
  EXPECT_GE(sequences.cache().capacity(), sequences.cache().lengths()[0]);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Decoding,
                         testing::Values(DecodeCase{.name = "multi_head"}, DecodeCase{.name = "grouped", .kv_heads = 2},
                                         DecodeCase{.name = "one_kv_head", .kv_heads = 1},
                                         DecodeCase{.name = "untied", .kv_heads = 2, .tied = false},
                                         DecodeCase{.name = "bias", .kv_heads = 2, .bias = true},
                                         DecodeCase{.name = "head_norms", .kv_heads = 2, .head_norms = true},
                                         DecodeCase{.name = "norms_behind", .kv_heads = 2, .norms_behind = true},
                                         DecodeCase{.name = "wide_heads", .kv_heads = 2, .head_dim = 32},
                                         DecodeCase{.name = "lora", .kv_heads = 2, .lora = true},
                                         DecodeCase{.name = "dora", .kv_heads = 2, .lora = true, .dora = true},
                                         DecodeCase{.name = "bf16", .kv_heads = 2, .dtype = at::kBFloat16}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::model
