// The ranks of a run as a table: where each is, what it does, and its part in each group.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "front/launch/living.h"

namespace lockstep::app {

struct RankTable {
  std::filesystem::path run;  // empty: its ranks do not train (a benchmark, a check)
  int world_size = 0;
  std::string spread;                     // "replicate 2 x shard 4"; empty: not known
  std::vector<launch::LivingRank> ranks;  // those of this machine
  std::vector<std::string> roles;         // of each of them: "replicate 0, shard 3"
};

std::vector<RankTable> tables_of_living_runs();
// UserError where no rank of it lives on this machine.
RankTable table_of_run(const std::filesystem::path& run);

std::string to_text(const RankTable& table);
nlohmann::ordered_json to_json(const RankTable& table);

}  // namespace lockstep::app
