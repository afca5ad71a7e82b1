// A dense decoder (RMSNorm, RoPE, grouped-query attention, SwiGLU) as a list of units. Knows nothing of ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "config/run_config.h"
#include "rank/model/stage.h"
#include "rank/model/weights/store.h"
#include "rank/model/weights/unit.h"

namespace lockstep::kernels {
struct Fp8Table;
}

namespace lockstep::model {

class DecodeCache;

// What LibTorch calls the setting model.dtype.
at::ScalarType scalar_type(config::DType dtype);

// Writes the initial weights. A number depends on (seed, leaf's first piece name, index) alone, so every rank count agrees.
void initialize(std::vector<std::unique_ptr<Unit>>& units, std::int64_t seed);

// What a decoder is given: tokens and targets [batch, time] i64 on the device; a target of -100 is not trained.
struct Input {
  at::Tensor tokens, targets;
  at::Tensor starts = {};  // [records + 1] i32 on the host where records are packed: rows where each starts, and the end
  at::Tensor keys = {};    // [batch] i64 on the device where adapters drop elements: one a row of tokens
};

// How well targets were predicted, summed over them: f32 scalars on the device.
struct Score {
  at::Tensor loss;
  at::Tensor correct;  // targets that were the likeliest token
};

// Layers [begin, end) of a model.
struct LayerRange {
  std::int64_t begin, end;
};

// The stage of a text model: all of it, or a run of its layers with the end that it reaches to. See Stage for what is not told here.
class Decoder final : public Stage {
 public:
  // The store has the units of decoder_units(), and of adapter_units() where lora asks for them; it must outlive the decoder.
  Decoder(const config::ModelConfig& config, const config::LoraConfig& lora, Store& store);
  // With the embedding where the range begins at 0, and the head where it ends with the last layer.
  Decoder(const config::ModelConfig& config, const config::LoraConfig& lora, Store& store, LayerRange range);
  // Over units that lie whole in memory. adapters: as adapter_units() lays them out, null where there is none.
  Decoder(const config::ModelConfig& config, const std::vector<Unit*>& units, Recompute recompute = Recompute::none);
  Decoder(const config::ModelConfig& config, const std::vector<Unit*>& units, const config::LoraConfig& lora, std::vector<Unit*> adapters);
  ~Decoder() override;
  // The decoder that a stage is, where the task is one of text.
  static Decoder& of(Stage& stage);

  // Every stage of a model is given the whole input: positions, records and targets are read where they are needed.
  void forward(const Input& input, const Micro& micro = {}, std::size_t flight = 0);
  at::Tensor backward(const at::Tensor& scale, std::size_t flight = 0) override;
  // The one after the other.
  at::Tensor forward_backward(const Input& input, const at::Tensor& scale, const Micro& micro = {});
  at::Tensor forward_backward(const at::Tensor& tokens, const at::Tensor& targets, const at::Tensor& scale);

  void set_recompute(const std::vector<Recompute>& policies, bool offload = false) override;
  void release_buffers() override;
  // bf16 weights.
  void use_fp8() override;
  // By the kernels of a table, which must outlive the decoder, on any device.
  void use_fp8(const kernels::Fp8Table& table);
  void reset_magnitudes() override;
  std::optional<std::size_t> often_added() const override;
  std::int64_t additions() const override;
  void set_most_chunks(std::int64_t most) override;
  Held held() const override;

  // Without gradients; of a whole model, as is all that follows.
  Score score(const Input& input);
  at::Tensor loss_sum(const Input& input);
  at::Tensor loss_sum(const at::Tensor& tokens, const at::Tensor& targets);
  // [batch, time, vocab]
  at::Tensor logits(const at::Tensor& tokens);

  // For `batch` sequences that have seen nothing yet.
  DecodeCache make_cache(std::int64_t batch) const;
  // The next tokens of every sequence in the cache, [batch, new] i64, many (a prompt) or one. counts: how many of a row are real, where
  // shorter rows are filled up at their end. Returns the logits behind the last real one: [batch, vocab].
  at::Tensor decode(const at::Tensor& tokens, DecodeCache& cache, std::span<const std::int64_t> counts = {});

 private:
  struct Parts;
  Decoder(std::unique_ptr<Parts> parts, const config::ModelConfig& config, const config::LoraConfig& lora, Store& store);
  Decoder(const config::ModelConfig& config, const config::LoraConfig& lora, std::unique_ptr<Store> own);
  void evaluate(Flight& flight, const Input& input);

  std::unique_ptr<Store> own_store_;  // only where units were given
  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep::model
