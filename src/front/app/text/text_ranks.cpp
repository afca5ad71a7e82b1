// Settings of a job that trains nothing.
#include "front/app/text/text_ranks.h"

#include "config/config.h"
#include "front/launch/libtorch.h"

namespace lockstep::app {
namespace {

config::Settings settings_for(const std::string& verb, const TextWish& wish, const RankWish& ranks,
                              const launch::Environment& environment) {
  config::Request request;
  std::string device = wish.device;
  if (device.starts_with("cuda:")) {
    request.assignments.push_back({"trainer.distributed.gpu_ids", device.substr(5), "--device"});
    device = "cuda";
  }
  request.assignments.push_back({"trainer.target_device", device, "--device"});
  request.assignments.push_back({"trainer.max_steps", "1", "no training"});  // who says nothing of training is told what it would be
  const bool on_gpus = device != "cpu" && !launch::look_at_machine(environment).visible.empty();
  // A rank more on a CPU would only hold the model twice.
  const std::int64_t on_cpu = ranks.shard ? 2 : 1;
  if (ranks.ranks || !on_gpus) request.assignments.push_back({"parallel.ranks", std::to_string(ranks.ranks.value_or(on_cpu)), "--ranks"});
  config::Settings settings = config::load(request);
  settings.values.name = verb;
  settings.values.launch.spawn = true;
  settings.values.trainer.batch_size = 1;
  return settings;
}

}  // namespace

job::Setup set_up_ranks(const std::string& verb, const TextWish& wish, const RankWish& ranks, const launch::Environment& environment) {
  job::Setup setup = job::set_up(settings_for(verb, wish, ranks, environment), environment);
  launch::use_own_worker(setup.job, environment);
  std::vector<std::string>& arguments = setup.job.arguments;
  if (ranks.shard) arguments = {"--shard", "1"};
  for (const auto& more : {model_arguments(wish), sampling_arguments(wish)}) arguments.insert(arguments.end(), more.begin(), more.end());
  return setup;
}

}  // namespace lockstep::app
