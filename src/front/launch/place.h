// Recognizes other launchers (torchrun, srun, mpirun, variables set by hand) from the environment: this process is then one rank of theirs.
#pragma once

#include <optional>
#include <string>

#include "front/launch/environment.h"

namespace lockstep::launch {

struct Place {
  std::string launcher;  // "torchrun", "srun", "mpirun", "the environment"
  int rank = 0;
  int local_rank = 0;
  int world_size = 1;
  int local_world_size = 1;  // a guess, LOCAL_RANK + 1, where nothing tells it
  bool on_one_host = false;  // all ranks are here, and all of them know it
  std::string master_addr;
  int master_port = 0;
  std::string job;        // the same on all local ranks of this start, another for another start: names the folder of their pages
  std::string run_label;  // the same on all ranks: completes the run's name where none was given
};

// Nothing: no other launcher, start the ranks from here. UserError that names what is missing if the set of variables is incomplete.
std::optional<Place> place_from_launcher(const Environment& environment);

// "node[01-03,7],b" -> "node01"
std::string first_host(std::string_view slurm_node_list);

// What SLURM writes of all nodes, "2(x3),1", for one of them; nothing where the list does not go so far.
std::optional<int> tasks_on_node(std::string_view slurm_tasks_per_node, int node);

}  // namespace lockstep::launch
