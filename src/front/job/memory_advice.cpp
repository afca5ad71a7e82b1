// Plans of the settings as they are, and of the smallest change that fits.
#include "front/job/memory_advice.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "front/plan/advice.h"

namespace lockstep::job {
namespace {

std::string human(std::int64_t bytes) { return base::human_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0))); }

plan::MemoryPlan plan_for(const Setup& setup, std::int64_t device_bytes) {
  return plan::plan_memory(setup.settings.values, {.ranks = setup.job.world_size, .on_gpu = setup.on_gpus, .device_bytes = device_bytes});
}

// "parallel.shard=full (20.1 GiB per rank)", for the first change of each kind; "" where nothing fits.
std::string ways_out(const plan::MemoryPlan& plan) {
  std::vector<std::string> ways;
  for (const plan::Change& change : plan::advise(plan).changes) {
    if (change.settings.empty()) continue;
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

bool tells_of_full_memory(const std::string& report) { return report.find("[memory] the ") != std::string::npos; }

std::string after_full_memory(const Setup& setup, const DeviceRoom& room) {
  if (room.bytes == 0) return "";
  const plan::MemoryPlan plan = plan_for(setup, room.bytes - room.taken);
  std::string text = fmt::format("  Planned: {}. {} has {}", plan::in_one_line(plan.memory), room.name, human(room.bytes));
  text += room.taken * 20 > room.bytes ? fmt::format(", of which others hold {} now.\n", human(room.taken)) : ".\n";
  if (const std::string ways = ways_out(plan); !ways.empty()) text += fmt::format("  What fits: {}.\n", ways);
  return text;
}

DeviceRoom least_room(const Setup& setup, const launch::Environment& environment) {
  if (!setup.on_gpus) {
    const std::int64_t all = std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
    return {.name = fmt::format("each of {} ranks of this host", setup.job.local_world_size),
            .bytes = all / std::max(1, setup.job.local_world_size)};
  }
  DeviceRoom least;
  const launch::Machine machine = launch::look_at_machine(environment);
  for (std::size_t i = 0; i < machine.visible.size(); ++i) {
    const launch::Gpu& gpu = machine.visible[i].gpu;
    const auto has = static_cast<std::int64_t>(gpu.memory_bytes), free = static_cast<std::int64_t>(gpu.free_bytes);
    if (least.bytes == 0 || free < least.bytes - least.taken) least = {fmt::format("GPU {} ({})", i, gpu.name), has, has - free};
  }
  return least;
}

}  // namespace lockstep::job
