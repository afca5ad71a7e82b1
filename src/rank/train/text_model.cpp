// Opens what generate and chat write with.
#include "rank/train/text_model.h"

#include "base/error.h"
#include "base/log.h"
#include "rank/train/make_model.h"
#include "rank/train/run.h"
#include "rank/train/state.h"

namespace lockstep::train {
namespace {

std::filesystem::path checkpoint_of(const ModelSource& source, const config::RunConfig& config, const record::RunFolder& folder) {
  if (!source.checkpoint.empty()) return source.checkpoint;
  std::vector<std::string> skipped;
  const auto newest = checkpoint::newest_whole(checkpoints_folder(config, folder), &skipped);
  for (const std::string& line : skipped) base::log_warning("{}", line);
  if (!newest) throw base::checkpoint_error("generate", "{} has no whole checkpoint yet.", source.run.string());
  return *newest;
}

TextModel open_run(const ModelSource& source, at::Device device) {
  const record::RunFolder folder{source.run};
  if (!std::filesystem::exists(folder.config())) {
    throw base::usage_error("generate", "{} is not a run folder: it has no config.yaml. Give --run a folder that `lockstep train` made.",
                            source.run.string());
  }
  TextModel opened{.config = config::load_resolved(folder.config()), .device = device};
  config::RunConfig& config = opened.config;
  config.model = config::with_defaults(config.model);
  const checkpoint::Reader reader(checkpoint_of(source, config, folder));
  check_same_model(reader, config.model);
  opened.replica = parallel::make_replica(model::decoder_units(config.model),
                                          {.device = device, .weight_dtype = model::scalar_type(config.model.dtype), .trainable = false});
  restore_weights(reader, opened.replica);
  opened.decoder = make_decoder(config, opened.replica);
  opened.language = task::language_of(data::open_dataset(config.data, config.model, config.trainer.seed).vocabulary);
  return opened;
}

}  // namespace

TextModel open_text_model(const ModelSource& source, at::Device device) { return open_run(source, device); }

}  // namespace lockstep::train
