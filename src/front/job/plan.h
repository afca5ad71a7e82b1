// What is about to run, told before it starts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "front/launch/devices/devices.h"
#include "layout/memory/memory.h"

namespace lockstep::job {

struct RunPlan {
  std::vector<launch::RankDevice> devices;  // one a local rank
  int world_size = 1;
  int threads = 1;
  config::Backend backend = config::Backend::automatic;  // as it will be chosen
  config::BatchPlan batch;
  std::int64_t parameters = 0;
  layout::RankMemory memory;                  // of one rank, by part
  std::optional<std::int64_t> epoch_samples;  // of training data, where it was counted
  std::string folder;
  std::string launcher;            // if another one started this rank
  std::vector<std::string> notes;  // one line each
};

// trainer.max_steps, or what the epochs make of the counted samples; nothing where they were not counted.
std::optional<std::int64_t> steps_of(const RunPlan& plan, const config::TrainerConfig& trainer);

std::int64_t tokens_per_step(const RunPlan& plan, const config::RunConfig& config);
std::string describe_data(const config::DataConfig& data);  // "chat.jsonl, packed", "20000 built-in stories"

// What parallel.shard cuts between ranks: "weights", "gradients", "states"; beside adapters "frozen weights", or nothing.
std::vector<std::string> cut_parts(const config::RunConfig& config);

std::string to_json(const RunPlan& plan, const config::RunConfig& config);  // {"event":"plan",...}

}  // namespace lockstep::job
