// How other launchers are told to start ranks: the words that stand before `lockstep train`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

inline constexpr std::string_view other_launchers[] = {"torchrun", "srun", "mpirun"};
bool is_other_launcher(std::string_view name);

struct RanksToStart {
  int each_machine = 1;
  int machines = 1;
  std::string master_addr = {};  // of machine 0; srun knows it by itself
  int master_port = 0;           // 0: the usual one
};
// Where there are several machines, torchrun's words are those of machine 0: it is started on each, with its --node-rank.
std::vector<std::string> words_for_launcher(std::string_view launcher, const RanksToStart& ranks);

}  // namespace lockstep::launch
