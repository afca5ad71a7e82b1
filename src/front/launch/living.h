// The ranks of this user that live on this machine, whoever started them: from their pages and their processes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "journal/page.h"

namespace lockstep::launch {

struct LivingRank {
  std::string job;                   // names the folder of its page; the same for all ranks of a job
  journal::PageView page;            // with what the kernel says of its process
  std::filesystem::path run = {};    // its run folder; empty: it does not train, or its process may not be looked at
  std::string device = {};           // "cuda:1", "cpu"
  std::string visible_devices = {};  // CUDA_VISIBLE_DEVICES of its process
  std::optional<int> local_rank = {};
  std::optional<int> world_size = {};
};
// By job, then by rank. Pages of jobs whose ranks are all gone are passed over.
std::vector<LivingRank> living_ranks();

}  // namespace lockstep::launch
