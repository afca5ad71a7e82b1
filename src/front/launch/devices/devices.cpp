// Chooses a device for each rank and says why a wish cannot be met.
#include "front/launch/devices/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace lockstep::launch {
namespace {

using config::Backend;
using config::DeviceKind;

// The GPU a token of CUDA_VISIBLE_DEVICES names.
const Gpu* find_gpu(std::span<const Gpu> installed, std::string_view token) {
  if (const auto index = base::parse_integer(token)) {
    const auto found = std::find_if(installed.begin(), installed.end(), [&](const Gpu& gpu) { return gpu.index == *index; });
    return found == installed.end() ? nullptr : &*found;
  }
  if (!token.starts_with("GPU-")) return nullptr;
  const Gpu* match = nullptr;
  for (const Gpu& gpu : installed) {
    if (!gpu.uuid.starts_with(token)) continue;
    if (match != nullptr) return nullptr;  // a prefix of two
    match = &gpu;
  }
  return match;
}

std::string gpus_there_are(const Machine& machine) {
  if (!machine.visible.empty()) return "GPUs there are:\n" + list_gpus(machine.visible);
  if (!machine.installed.empty()) return "CUDA_VISIBLE_DEVICES hides all GPUs of this machine.";
  if (!machine.problem.empty()) return "There is no usable GPU: " + machine.problem;
  return "There is no GPU in this machine.";
}

// Positions in machine.visible that the wish asks for, before ranks are dealt out.
std::vector<int> chosen_gpus(const DeviceWish& wish, const Machine& machine) {
  const int count = static_cast<int>(machine.visible.size());
  std::vector<int> chosen;
  if (wish.gpu_ids.empty()) {
    for (int i = 0; i < count; ++i) chosen.push_back(i);
  } else {
    std::set<std::int64_t> seen;
    for (const std::int64_t id : wish.gpu_ids) {
      if (id < 0 || id >= count)
        throw base::usage_error("launch", "--gpus {}: there is no GPU {}. {}", fmt::join(wish.gpu_ids, ","), id, gpus_there_are(machine));
      if (!seen.insert(id).second) {
        throw base::usage_error("launch",
                                "--gpus {} names GPU {} twice; each rank needs its own. For several ranks on one GPU set "
                                "LOCKSTEP_OVERSUBSCRIBE=1 and use --ranks.",
                                fmt::join(wish.gpu_ids, ","), id);
      }
      chosen.push_back(static_cast<int>(id));
    }
  }
  if (wish.num_gpus > static_cast<std::int64_t>(chosen.size())) {
    throw base::usage_error("launch", "--num-gpus {}: only {} can be used{}. {}", wish.num_gpus, chosen.size(),
                            wish.gpu_ids.empty() ? "" : " with --gpus", gpus_there_are(machine));
  }
  if (wish.num_gpus > 0) chosen.resize(static_cast<std::size_t>(wish.num_gpus));
  return chosen;
}

// One rank is forced (LOCKSTEP_SINGLE_GPU, trainer.distributed.enabled) against a wish for several.
void note_forced_rank(const DeviceWish& wish, Selection& selection) {
  if (!wish.one_rank || wish.ranks <= 1) return;
  selection.notes.push_back(
      fmt::format("one rank is used, not {}: LOCKSTEP_SINGLE_GPU is set or trainer.distributed.enabled is off.", wish.ranks));
}

Selection cpu_ranks(const DeviceWish& wish, const Machine& machine) {
  if (wish.backend == Backend::nccl) {
    throw base::machine_error(
        "launch", "--sync-backend nccl needs GPUs, and these ranks are on the CPU. Use --sync-backend gloo (or leave it out). {}",
        gpus_there_are(machine));
  }
  std::int64_t ranks = wish.ranks > 0 ? wish.ranks : (machine.cores >= 2 ? 2 : 1);
  if (wish.one_rank || wish.backend == Backend::single) ranks = 1;
  Selection selection;
  selection.ranks.assign(static_cast<std::size_t>(ranks), RankDevice{"cpu", "CPU"});
  selection.visible_devices = "";
  note_forced_rank(wish, selection);
  if (wish.kind == DeviceKind::automatic && !machine.problem.empty()) selection.notes.push_back("no GPU is used: " + machine.problem);
  return selection;
}

}  // namespace

std::vector<VisibleGpu> visible_gpus(std::span<const Gpu> installed, const std::optional<std::string>& variable) {
  std::vector<VisibleGpu> visible;
  if (!variable) {
    for (const Gpu& gpu : installed) visible.push_back({gpu, std::to_string(gpu.index)});
    return visible;
  }
  std::set<std::string> seen;
  for (const std::string& piece : base::split(*variable, ',')) {
    const std::string token = base::trim(piece);
    if (token.starts_with("MIG-")) {
      visible.push_back({Gpu{.index = -1, .name = "MIG slice", .uuid = token}, token});
      continue;
    }
    const Gpu* gpu = find_gpu(installed, token);
    if (gpu == nullptr) break;
    if (!seen.insert(gpu->uuid.empty() ? token : gpu->uuid).second) return {};  // CUDA takes a doubled name as an error and shows none
    visible.push_back({*gpu, token});
  }
  return visible;
}

std::string list_gpus(std::span<const VisibleGpu> gpus) {
  std::string text;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const Gpu& gpu = gpus[i].gpu;
    text += fmt::format("  {}: {}{}{}\n", i, gpu.name, gpu.memory_bytes > 0 ? ", " + base::human_bytes(gpu.memory_bytes) : "",
                        gpu.index >= 0 && gpu.index != static_cast<int>(i) ? fmt::format(" (nvidia-smi calls it {})", gpu.index) : "");
  }
  if (!text.empty()) text.pop_back();
  return text;
}

Selection select_devices(const DeviceWish& wish, const Machine& machine) {
  if (wish.backend == Backend::single && wish.ranks > 1) {
    throw base::usage_error("launch", "--sync-backend single is for one rank, and --ranks {} was asked for. Leave one of them out.",
                            wish.ranks);
  }
  const bool asks_for_gpus = wish.kind == DeviceKind::cuda || !wish.gpu_ids.empty() || wish.num_gpus > 0;
  if (wish.kind == DeviceKind::cpu) {
    if (!wish.gpu_ids.empty() || wish.num_gpus > 0) {
      throw base::usage_error("launch",
                              "--device cpu and a choice of GPUs (--gpus, --num-gpus) contradict each other. Leave one of them out.");
    }
    return cpu_ranks(wish, machine);
  }
  if (machine.visible.empty()) {
    if (!wish.gpu_ids.empty()) chosen_gpus(wish, machine);  // names the id
    if (asks_for_gpus)
      throw base::machine_error("launch", "GPUs were asked for. {} Use --device cpu to train on the CPU.", gpus_there_are(machine));
    return cpu_ranks(wish, machine);
  }

  std::vector<int> chosen = chosen_gpus(wish, machine);
  std::int64_t ranks = wish.ranks > 0 ? wish.ranks : static_cast<std::int64_t>(chosen.size());
  if (wish.one_rank || wish.backend == Backend::single) ranks = 1;
  const bool own_gpu_each = wish.bound_by_launcher && chosen.size() == 1;
  if (ranks > static_cast<std::int64_t>(chosen.size()) && !wish.oversubscribe && !own_gpu_each) {
    throw base::usage_error(
        "launch",
        "{} ranks need {} GPUs, and {} can be used. {}\nUse --ranks {}, --device cpu, or LOCKSTEP_OVERSUBSCRIBE=1 to let ranks share a GPU "
        "(for tests; slower).",
        ranks, ranks, chosen.size(), gpus_there_are(machine), chosen.size());
  }
  if (static_cast<std::int64_t>(chosen.size()) > ranks) chosen.resize(static_cast<std::size_t>(ranks));

  Selection selection;
  note_forced_rank(wish, selection);
  std::vector<std::string> tokens;
  for (const int position : chosen) tokens.push_back(machine.visible[static_cast<std::size_t>(position)].token);
  selection.visible_devices = base::join(tokens, ",");
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::size_t slot = static_cast<std::size_t>(rank) % chosen.size();
    const int position = chosen[slot];
    const Gpu& gpu = machine.visible[static_cast<std::size_t>(position)].gpu;
    selection.ranks.push_back({fmt::format("cuda:{}", slot), gpu.name, position});
  }
  selection.shared = ranks > static_cast<std::int64_t>(chosen.size()) && !own_gpu_each;
  if (selection.shared)
    selection.notes.push_back(fmt::format("{} ranks share {} (LOCKSTEP_OVERSUBSCRIBE=1): good for tests, slow for training.", ranks,
                                          chosen.size() == 1 ? "one GPU" : fmt::format("{} GPUs", chosen.size())));
  if (chosen.size() == 1 && machine.visible.size() > 1 && !own_gpu_each) {
    selection.notes.push_back(
        fmt::format("only GPU {} of {} is used; leave out --gpus, --num-gpus, --ranks and LOCKSTEP_SINGLE_GPU to use all.", chosen[0],
                    machine.visible.size()));
  }
  return selection;
}

Machine look_at_machine(const Environment& environment) {
  Machine machine;
  machine.cores = usable_cores();
  machine.installed = installed_gpus(machine.problem);
  const auto variable = environment.find("CUDA_VISIBLE_DEVICES");
  machine.visible = visible_gpus(machine.installed, variable == environment.end() ? std::nullopt : std::optional(variable->second));
  return machine;
}

std::int64_t smallest_gpu_bytes(const Machine& machine) {
  std::uint64_t least = 0;
  for (const VisibleGpu& visible : machine.visible)
    least = least == 0 ? visible.gpu.memory_bytes : std::min(least, visible.gpu.memory_bytes);
  return static_cast<std::int64_t>(least);
}

}  // namespace lockstep::launch
