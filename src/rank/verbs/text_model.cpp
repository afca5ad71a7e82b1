// Opens what generate and chat write with.
#include "rank/verbs/text_model.h"

#include "base/error.h"
#include "config/config.h"
#include "corpus/formats/language.h"
#include "rank/train/make_model.h"
#include "journal/run_folder.h"
#include "rank/train/resume/state.h"

namespace lockstep::verbs {
namespace {

// A run's settings, or those of a model folder.
config::RunConfig settings_of(const ModelSource& source) {
  config::Request request;
  if (source.model.empty()) {
    const journal::RunFolder folder{source.run};
    if (!std::filesystem::exists(folder.config())) {
      throw base::usage_error("generate", "{} is not a run folder: it has no config.yaml. Give --run a folder that `lockstep train` made.",
                              source.run.string());
    }
    config::RunConfig config = config::load_resolved(folder.config());
    config.model = config::with_defaults(config.model);
    return config;
  }
  request.assignments.push_back({"model.path", source.model.string(), "--model"});
  if (!source.adapter.empty()) request.assignments.push_back({"lora.adapters", source.adapter.string(), "--adapter"});
  if (!source.dtype.empty()) request.assignments.push_back({"model.dtype", source.dtype, "--dtype"});
  config::RunConfig config = config::load(request).values;
  config.model.load_in_4bit = source.load_in_4bit;
  config.model.load_in_8bit = source.load_in_8bit;
  return config;
}

// Units that are only read. Weights are not written yet.
parallel::Replica make_readers(const config::RunConfig& config, at::Device device, const comm::Mesh* mesh) {
  if (config.lora.enabled) return train::make_units(config, device, mesh);
  const model::UnitStorage storage{.device = device,
                                   .weight_dtype = model::scalar_type(config.model.dtype),
                                   .trainable = false,
                                   .quantization = train::quantization_of(config.model),
                                   .double_quant = config.model.double_quant};
  if (mesh == nullptr) return parallel::make_replica(model::decoder_units(config.model), storage);
  return parallel::make_sharded(model::decoder_units(config.model), {}, storage, *mesh, layout::zero_3, config);
}

}  // namespace

TextModel open_text_model(const ModelSource& source, at::Device device, const comm::Mesh* mesh) {
  TextModel opened{
      .session = std::make_unique<kernels::Session>(device, /*deterministic=*/false), .config = settings_of(source), .device = device};
  config::RunConfig& config = opened.config;
  config.parallel.shard = mesh != nullptr ? config::ShardKind::full : config::ShardKind::none;
  config.parallel.replicate = 1;
  opened.replica = make_readers(config, device, mesh);
  opened.decoder = std::make_unique<model::Decoder>(config.model, config.lora, *opened.replica.store);
  if (!source.model.empty() || config.lora.enabled) {
    if (config.model.path.empty())
      train::initialize_weights(config, opened.replica);
    else
      train::load_weights(config, opened.replica);
  }
  train::initialize_adapters(config, opened.replica, *opened.decoder);
  if (source.model.empty()) {
    const checkpoint::Reader reader(source.checkpoint.empty() ? train::newest_checkpoint("generate", config, {source.run})
                                                              : source.checkpoint);
    train::check_same_model(reader, config.model);
    train::TensorReading reading(reader, nullptr);
    train::restore_weights(reading, opened.replica);
  }
  opened.replica.store->updated();
  opened.language = corpus::language_of(config.data, config.model);
  opened.language->read();
  return opened;
}

}  // namespace lockstep::verbs
