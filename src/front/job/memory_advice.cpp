// Plans of the settings as they are, and of the smallest change that fits.
#include "front/job/memory_advice.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/system/host_memory.h"
#include "base/text.h"
#include "front/launch/devices/nvml.h"
#include "front/plan/advice.h"

namespace lockstep::job {
namespace {

std::string human(std::int64_t bytes) { return base::human_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0))); }

plan::MemoryPlan plan_for(const Setup& setup, std::int64_t device_bytes) {
  config::RunConfig config = setup.settings.values;
  // Memory of a host is no measure for ranks on its CPU: recompute = auto keeps everything there.
  if (!setup.on_gpus && config.trainer.recompute == config::Recompute::automatic) config.trainer.recompute = config::Recompute::none;
  return plan::plan_memory(config, {.ranks = setup.job.world_size, .on_gpu = setup.on_gpus, .device_bytes = device_bytes});
}

// Address space of LibTorch, of threads' stacks and of their arenas before there is a tensor: 0.4 to 0.5 GB were seen.
constexpr std::int64_t program_bytes = 512 << 20;

// "parallel.shard=full (20.1 GiB per rank)", for the first change of each kind; "" where nothing fits.
std::string ways_out(const plan::MemoryPlan& plan) {
  std::vector<std::string> ways;
  for (const plan::Change& change : plan::advise(plan).changes) {
    if (change.settings.empty()) continue;
    if (change.ranks != plan.wish.ranks && !plan.wish.on_gpu) continue;  // more ranks share the same memory
    const std::string where = change.ranks == plan.wish.ranks ? "" : fmt::format(" on {} ranks", change.ranks);
    ways.push_back(
        fmt::format("{}{} ({}, {} per rank)", base::join(change.settings, " "), where, change.effect, human(change.memory.total())));
  }
  return base::join(ways, "; or ");
}

}  // namespace

std::optional<std::string> memory_note(const Setup& setup) {
  if (!setup.on_gpus || setup.gpu_bytes == 0) return std::nullopt;
  const plan::MemoryPlan plan = plan_for(setup, setup.gpu_bytes);
  if (plan::verdict_of(plan.memory, setup.gpu_bytes) != plan::Verdict::too_large) return std::nullopt;
  const std::string ways = ways_out(plan);
  return fmt::format("each rank would need {}, and a GPU here has {}: it is likely to run out of memory.{}", human(plan.memory.total()),
                     human(setup.gpu_bytes), ways.empty() ? "" : " What fits: " + ways + ".");
}

bool tells_of_full_memory(const std::string& report) { return report.find("[memory] ") != std::string::npos; }

std::string after_full_memory(const Setup& setup, const DeviceRoom& room) {
  if (room.bytes == 0) return "";
  plan::MemoryPlan plan = plan_for(setup, room.bytes - room.taken);
  std::string text = fmt::format("  Planned: {}. {} has {}", plan::in_one_line(plan.memory), room.name, human(room.bytes));
  if (room.taken * 20 > room.bytes) text += fmt::format(", of which others hold {} now", human(room.taken));
  text += (room.holders.empty() ? "" : ": " + base::join(room.holders, "; ")) + ".\n";
  const bool fits = plan::verdict_of(plan.memory, room.bytes - room.taken) != plan::Verdict::too_large;
  // Somebody else had the room, or the plan is wrong: what needs clearly less is worth a try.
  if (fits) plan = plan_for(setup, plan.memory.total() / 4 * 3);
  if (const std::string ways = ways_out(plan); !ways.empty())
    text += fmt::format("  {}: {}.\n", fits ? "That should fit, and did not. What takes less" : "What fits", ways);
  return text;
}

DeviceRoom least_room(const Setup& setup, const launch::Environment& environment) {
  if (!setup.on_gpus) {
    const base::HostMemory host = base::look_at_host_memory();
    const std::uint64_t all = std::min(host.total_bytes, host.container_limit_bytes.value_or(host.total_bytes));
    const auto share = [&](std::uint64_t bytes) { return static_cast<std::int64_t>(bytes) / std::max(1, setup.job.local_world_size); };
    const DeviceRoom room = {.name = fmt::format("Each of {} ranks of this host", setup.job.local_world_size),
                             .bytes = share(all),
                             .taken = share(all - std::min(all, host.usable()))};
    rlimit limit{};  // ranks inherit it, each for itself
    if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur >= static_cast<rlim_t>(room.bytes - room.taken)) return room;
    const auto address_space = static_cast<std::int64_t>(limit.rlim_cur);
    return {.name = "Under `ulimit -v` each rank, its program left out,",
            .bytes = std::max<std::int64_t>(address_space - program_bytes, 1)};
  }
  DeviceRoom least;
  int index = -1;  // as the driver counts
  const launch::Machine machine = launch::look_at_machine(environment);
  for (std::size_t i = 0; i < machine.visible.size(); ++i) {
    const launch::Gpu& gpu = machine.visible[i].gpu;
    const auto has = static_cast<std::int64_t>(gpu.memory_bytes), free = static_cast<std::int64_t>(gpu.free_bytes);
    if (least.bytes != 0 && free >= least.bytes - least.taken) continue;
    least = {fmt::format("GPU {} ({})", i, gpu.name), has, has - free};
    index = gpu.index;
  }
  const launch::Nvml driver;
  if (driver.started() && index >= 0 && index < driver.count())
    for (const launch::GpuProcess& process : driver.processes(index)) least.holders.push_back(describe(process));
  return least;
}

}  // namespace lockstep::job
