// Puts a run's units and decoder together.
#include "rank/train/make_model.h"

#include "rank/model/adapter.h"

namespace lockstep::train {
namespace {

model::Quantization quantization_of(const config::ModelConfig& model) {
  if (model.load_in_4bit) return model::Quantization::nf4;
  return model.load_in_8bit ? model::Quantization::int8 : model::Quantization::none;
}

// The matrix that a module trained whole starts as.
at::Tensor original_of(const config::ModelConfig& model, const parallel::Replica& replica, std::size_t unit) {
  const bool tied_head = unit + 1 == replica.units.size() && model.tie_embeddings;
  return (tied_head ? replica.units.front() : replica.units[unit])->weight(0);
}

}  // namespace

parallel::Replica make_units(const config::RunConfig& config, at::Device device) {
  const at::ScalarType dtype = model::scalar_type(config.model.dtype);
  const model::UnitStorage storage{.device = device, .weight_dtype = dtype, .gradient_dtype = dtype, .master = config.trainer.optimizer_states == config::StateDType::f32};
  if (!config.lora.enabled) return parallel::make_replica(model::decoder_units(config.model), storage);
  model::UnitStorage frozen = storage;
  frozen.quantization = quantization_of(config.model);
  frozen.double_quant = config.model.double_quant;
  return parallel::make_adapted_replica(model::decoder_units(config.model), model::adapter_units(config.model, config.lora), frozen);
}

std::unique_ptr<model::Decoder> make_decoder(const config::RunConfig& config, const parallel::Replica& replica) {
  return std::make_unique<model::Decoder>(config.model, replica.in_forward_order(), config.lora, replica.adapters_in_forward_order());
}

void initialize_weights(const config::RunConfig& config, parallel::Replica& replica) {
  model::initialize(replica.units, config.trainer.seed);
}

void initialize_adapters(const config::RunConfig& config, parallel::Replica& replica, model::Decoder& decoder) {
  if (replica.adapters.empty()) return;
  model::initialize(replica.adapters, config.trainer.seed);
  for (const std::size_t whole : {std::size_t{0}, replica.adapters.size() - 1}) {
    if (!replica.adapters[whole]) continue;
    const at::Tensor original = original_of(config.model, replica, whole);
    replica.adapters[whole]->exact().narrow(0, 0, original.numel()).copy_(original.reshape({-1}));
    replica.adapters[whole]->refresh_weights();
  }
  decoder.reset_magnitudes();
}

}  // namespace lockstep::train
