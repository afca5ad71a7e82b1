// The memory plan in words: one rank's parts, what each recompute policy would take, and whether it fits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "layout/memory/memory.h"

namespace lockstep::plan {

struct MemoryPlan {
  config::RunConfig config;
  config::BatchPlan batch;
  layout::MemoryWish wish;
  layout::RankMemory memory;
  // The words that start it: "lockstep train -f models/nano.yaml", and settings.
  std::vector<std::string> command = {}, settings = {};
};
// The command with these settings as well, in place of others for the same.
std::string command_with(const MemoryPlan& plan, const std::vector<std::string>& settings);
// UserError where the batch, or groups of shards, do not divide by the ranks.
MemoryPlan plan_memory(const config::RunConfig& config, const layout::MemoryWish& wish);

std::string to_text(const MemoryPlan& plan);
std::string to_json(const MemoryPlan& plan);  // one object

// "24GiB", "24G", "80 GB": bytes; powers of 1024 but for KB, MB, GB. UserError of "plan" that names the flag.
std::int64_t parse_memory(const std::string& text);

// "weights 1.2 GiB, gradients 2.4 GiB, ..., in all 9.1 GiB", for the header of a run.
std::string in_one_line(const layout::RankMemory& memory);

}  // namespace lockstep::plan
