// Loads a run's weights and samples from them.
#include "rank/train/generate.h"

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "rank/train/run.h"
#include "rank/train/state.h"

namespace lockstep::train {
namespace {

double number(const std::map<std::string, std::string>& arguments, const char* name, double otherwise) {
  const auto found = arguments.find(name);
  if (found == arguments.end()) return otherwise;
  const auto value = base::parse_number(found->second);
  if (!value) throw base::usage_error("generate", "--{} {} is not a number.", name, found->second);
  return *value;
}

std::string text(const std::map<std::string, std::string>& arguments, const char* name, const std::string& otherwise) {
  const auto found = arguments.find(name);
  return found == arguments.end() ? otherwise : found->second;
}

}  // namespace

GenerateRequest parse_generate_request(const std::map<std::string, std::string>& arguments, at::Device device) {
  GenerateRequest request;
  request.run = text(arguments, "run", "");
  request.checkpoint = text(arguments, "checkpoint", "");
  request.prompt = text(arguments, "prompt", "Once upon a time");
  request.device = device;
  request.sampling.max_tokens = static_cast<std::int64_t>(number(arguments, "max-tokens", 80));
  request.sampling.temperature = number(arguments, "temperature", 0.7);
  request.sampling.top_k = static_cast<std::int64_t>(number(arguments, "top-k", 0));
  request.sampling.seed = static_cast<std::int64_t>(number(arguments, "seed", 0));
  return request;
}

std::string generate(const GenerateRequest& request) {
  const record::RunFolder folder{request.run};
  if (!std::filesystem::exists(folder.config())) {
    throw base::usage_error("generate", "{} is not a run folder: it has no config.yaml. Give --run a folder that `lockstep train` made.",
                            request.run.string());
  }
  config::RunConfig config = config::load_resolved(folder.config());
  config.model = config::with_defaults(config.model);
  std::filesystem::path where = request.checkpoint;
  if (where.empty()) {
    std::vector<std::string> skipped;
    const auto newest = checkpoint::newest_whole(checkpoints_folder(config, folder), &skipped);
    for (const std::string& line : skipped) base::log_warning("{}", line);
    if (!newest) throw base::checkpoint_error("generate", "{} has no whole checkpoint yet.", request.run.string());
    where = *newest;
  }
  const checkpoint::Reader reader(where);
  check_same_model(reader, config.model);
  const data::Dataset dataset = data::open_dataset(config.data, config.model, config.trainer.seed);
  parallel::Replica replica = parallel::make_replica(model::decoder_units(config.model), {.device = request.device, .trainable = false});
  restore_weights(reader, replica);
  model::Decoder decoder(config.model, replica.in_forward_order());
  task::SampleOptions sampling = request.sampling;
  sampling.context = config.model.max_seq_len;
  return task::sample(decoder, *dataset.vocabulary, request.prompt, request.device, sampling);
}

}  // namespace lockstep::train
