// The ranks of a run as a table: where each is, what it does, and its part in each group.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::app {

struct RankRow {
  int rank = 0;
  std::string host, device;  // "GPU 3", "CPU"
  std::int64_t pid = 0, step = 0;
  std::string phase;   // "backward"
  std::string groups;  // its place along each axis: "replicate 0, shard 3"
  std::string doing;   // "waits in all_reduce 4812, gradients of block 14"
};

struct RankTable {
  std::filesystem::path run;  // empty: its ranks do not train (a benchmark, a check)
  int world_size = 0;
  std::string spread;  // "replicate 2 x shard 4"; empty: not known
  std::vector<RankRow> rows;
};

// Of this machine's ranks: from their pages.
std::vector<RankTable> tables_of_living_runs();
// With the ranks of other machines, as the run folder tells of them. UserError where nobody trains the run.
RankTable table_of_run(const std::filesystem::path& run);

std::string to_text(const RankTable& table);
nlohmann::ordered_json to_json(const RankTable& table);

}  // namespace lockstep::app
