// A dense decoder (RMSNorm, RoPE, grouped-query attention, SwiGLU) as a list of units. Knows nothing of ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "config/run_config.h"
#include "rank/model/weights/store.h"
#include "rank/model/weights/unit.h"

namespace lockstep::kernels {
class Progress;
struct Fp8Table;
}  // namespace lockstep::kernels

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

// Forward and backward are explicit: no autograd graph is built. One thread, the device's current stream.
class Decoder {
 public:
  // The store has the units of decoder_units(), and of adapter_units() where lora asks for them; it must outlive the decoder.
  Decoder(const config::ModelConfig& config, const config::LoraConfig& lora, Store& store);
  // Over units that lie whole in memory. adapters: as adapter_units() lays them out, null where there is none.
  Decoder(const config::ModelConfig& config, const std::vector<Unit*>& units, Recompute recompute = Recompute::none);
  Decoder(const config::ModelConfig& config, const std::vector<Unit*>& units, const config::LoraConfig& lora, std::vector<Unit*> adapters);
  ~Decoder();

  // Adds the gradient of scale * (summed loss) to the units' gradients, tells the store of each leaf that is complete
  // and returns the summed loss: f32 scalar on the device. scale: f32 scalar on the device.
  at::Tensor forward_backward(const Input& input, const at::Tensor& scale, const Micro& micro = {});
  at::Tensor forward_backward(const at::Tensor& tokens, const at::Tensor& targets, const at::Tensor& scale);
  // The same in two halves, between which other micro-batches may go their way: so many at once, one at first. What a flight left behind
  // is gone when it goes forward again, and with release_buffers(). All that is summed is added in backward.
  void set_flights(std::size_t count);
  void forward(const Input& input, const Micro& micro = {}, std::size_t flight = 0);
  at::Tensor backward(const at::Tensor& scale, std::size_t flight = 0);
  // From the next step on: one policy a block. offload: the inputs of blocks that are recomputed wait in host memory.
  void set_recompute(const std::vector<Recompute>& policies, bool offload = false);
  // Gives activations back; the next step makes them anew.
  void release_buffers();
  // From the next step on, blocks multiply in 8 bits. bf16 weights, on a device where kernels::has_fp8; or anywhere by the kernels of a
  // table, which must outlive the decoder.
  void use_fp8();
  void use_fp8(const kernels::Fp8Table& table);
  // Most parameters' gradients are added to once a micro-step. The output matrix's is, once a chunk of logits: how often in the last
  // micro-step, and in at most how many chunks from the next one on. The unit that it belongs to, where it is trained.
  std::int64_t head_additions() const;
  void set_most_head_chunks(std::int64_t most);
  std::optional<std::size_t> head_owner() const;
  // From the next step on, after every block in both directions, once its kernels are launched, progress is marked; null: nowhere.
  void mark_blocks(std::shared_ptr<kernels::Progress> progress);

  // Without gradients.
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

  // What steps have left behind, in bytes.
  struct Held {
    std::int64_t activations;  // of blocks, what they share, the head's rows and the rotary tables
    std::int64_t dense_copy;   // of a quantized matrix
    std::int64_t logits;       // of the last chunk, which is gone again
  };
  Held held() const;

  // DoRA: magnitudes that leave the loaded weights as they are. Once, when base weights and adapters are in place.
  void reset_magnitudes();

 private:
  struct Parts;
  std::unique_ptr<Store> own_store_;  // only where units were given
  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep::model
