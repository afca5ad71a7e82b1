// One function a launcher.
#include "front/launch/other_launchers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep::launch {
namespace {

std::vector<std::string> torchrun_words(const RanksToStart& ranks) {
  std::vector<std::string> words = {"torchrun"};
  if (ranks.machines > 1) {
    words.insert(words.end(), {fmt::format("--nnodes={}", ranks.machines), "--node-rank=0", "--master-addr=" + ranks.master_addr});
    if (ranks.master_port > 0) words.push_back(fmt::format("--master-port={}", ranks.master_port));
  } else {
    words.emplace_back("--standalone");
  }
  words.insert(words.end(), {fmt::format("--nproc-per-node={}", ranks.each_machine), "--no-python"});
  return words;
}

std::vector<std::string> srun_words(const RanksToStart& ranks) {
  std::vector<std::string> words = {"srun"};
  if (ranks.machines > 1)
    words.insert(words.end(), {fmt::format("--nodes={}", ranks.machines), fmt::format("--ntasks-per-node={}", ranks.each_machine)});
  else
    words.push_back(fmt::format("--ntasks={}", ranks.each_machine));
  words.emplace_back("--kill-on-bad-exit=1");
  return words;
}

// Its ranks are told where to meet: mpirun does not say on which machine rank 0 is.
std::vector<std::string> mpirun_words(const RanksToStart& ranks) {
  std::vector<std::string> words = {"mpirun", "-n", std::to_string(ranks.machines * ranks.each_machine)};
  if (ranks.machines > 1)
    words.insert(words.end(), {"--map-by", fmt::format("ppr:{}:node", ranks.each_machine), "-x", "MASTER_ADDR=" + ranks.master_addr});
  if (ranks.machines > 1 && ranks.master_port > 0) words.insert(words.end(), {"-x", fmt::format("MASTER_PORT={}", ranks.master_port)});
  return words;
}

}  // namespace

bool is_other_launcher(std::string_view name) {
  return std::find(std::begin(other_launchers), std::end(other_launchers), name) != std::end(other_launchers);
}

std::vector<std::string> words_for_launcher(std::string_view launcher, const RanksToStart& ranks) {
  if (launcher == "torchrun") return torchrun_words(ranks);
  if (launcher == "srun") return srun_words(ranks);
  if (launcher == "mpirun") return mpirun_words(ranks);
  throw base::Bug("a launcher that is not our own has words");
}

}  // namespace lockstep::launch
