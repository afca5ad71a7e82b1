// Decides everything about a run that can be decided before it starts.
#include "front/job/setup.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "config/backend.h"
#include "front/job/memory_advice.h"
#include "front/job/naming.h"
#include "layout/decoder.h"
#include "layout/tables.h"

namespace lockstep::job {
namespace {

using config::RunConfig;
using launch::Environment;
using launch::Place;

launch::DeviceWish wish_of(const RunConfig& config, const std::optional<Place>& place, const Environment& environment) {
  launch::DeviceWish wish;
  wish.kind = config.trainer.target_device;
  wish.backend = config.trainer.distributed.backend;
  wish.gpu_ids = config.trainer.distributed.gpu_ids;
  wish.num_gpus = config.launch.num_gpus;
  wish.ranks = config.parallel.ranks;
  wish.oversubscribe = launch::is_on(environment, "LOCKSTEP_OVERSUBSCRIBE") || config.launch.dry_run;
  wish.one_rank = !config.trainer.distributed.enabled || launch::is_on(environment, "LOCKSTEP_SINGLE_GPU");
  if (!place) return wish;
  if (wish.ranks > 0 && wish.ranks != place->local_world_size) {
    throw base::usage_error(
        "launch", "--ranks {} was asked for, but {} has started {} here. Leave --ranks out, or use --spawn to start all ranks from here.",
        wish.ranks, place->launcher, place->local_world_size);
  }
  wish.one_rank = false;  // the launcher has decided
  wish.ranks = place->local_world_size;
  wish.bound_by_launcher = place->launcher == "srun" || place->launcher == "mpirun";
  return wish;
}

int threads_of(const RunConfig& config, int local_ranks, int cores, const Environment& environment) {
  if (config.parallel.threads > 0) return static_cast<int>(config.parallel.threads);
  if (const auto given = launch::lookup(environment, "OMP_NUM_THREADS")) {
    if (const auto threads = base::parse_integer(*given); threads && *threads > 0) return static_cast<int>(*threads);
  }
  return std::max(1, cores / std::max(1, local_ranks));
}

// Ranks of this machine, from another launcher's word or from ours.
void place_ranks(Setup& setup, const launch::Selection& devices) {
  const config::ParallelConfig& parallel = setup.settings.values.parallel;
  launch::Job& job = setup.job;
  if (setup.place) {
    const Place& place = *setup.place;
    job.ranks = {{place.rank, place.local_rank, devices.ranks[static_cast<std::size_t>(place.local_rank)].device}};
    job.world_size = place.world_size;
    job.local_world_size = place.local_world_size;
    job.master_addr = place.master_addr;
    job.master_port = place.master_port;
    // Ranks of torchrun see each other by the pages of one folder; launchers of the others talk.
    job.foreign = place.launcher == "torchrun";
    job.id = job.foreign ? place.job : fmt::format("{}-{:x}", ::getpid(), base::now_ns());
    setup.writes_shared_files = place.rank == 0;
    return;
  }
  const int local = static_cast<int>(devices.ranks.size());
  for (int i = 0; i < local; ++i) {
    job.ranks.push_back({static_cast<int>(parallel.node_rank) * local + i, i, devices.ranks[static_cast<std::size_t>(i)].device});
  }
  job.world_size = local * static_cast<int>(parallel.nnodes);
  job.local_world_size = local;
  job.id = fmt::format("{}-{:x}", ::getpid(), base::now_ns());
  setup.writes_shared_files = parallel.node_rank == 0;
}

}  // namespace

Setup set_up(config::Settings settings, const Environment& environment) {
  Setup setup;
  setup.settings = std::move(settings);
  RunConfig& config = setup.settings.values;
  if (!config.launch.spawn) setup.place = launch::place_from_launcher(environment);

  launch::Machine machine;
  if (config.trainer.target_device == config::DeviceKind::cpu)
    machine.cores = launch::usable_cores();
  else
    machine = launch::look_at_machine(environment);
  const launch::Selection devices = launch::select_devices(wish_of(config, setup.place, environment), machine);
  setup.on_gpus = devices.ranks.front().device != "cpu";
  if (setup.on_gpus) setup.gpu_bytes = launch::smallest_gpu_bytes(machine);

  launch::Job& job = setup.job;
  place_ranks(setup, devices);
  job.environment = environment;
  job.visible_devices = devices.visible_devices;
  job.shared_gpus = devices.shared;
  job.threads = threads_of(config, job.local_world_size, machine.cores, environment);
  job.stall_seconds = config.monitor.stall_seconds;
  job.stall_abort_seconds = config.monitor.stall_abort_seconds;

  // Other machines may start another number of ranks: they say so when they meet.
  if (setup.place || config.parallel.nnodes == 1 || config.launch.dry_run) plan_for_world(setup);
  setup.plan.parameters = layout::count_parameters(config.model);
  setup.plan.threads = job.threads;
  setup.plan.devices = devices.ranks;
  setup.plan.notes.insert(setup.plan.notes.begin(), devices.notes.begin(), devices.notes.end());
  if (setup.place) setup.plan.launcher = setup.place->launcher;
  if (setup.place && config.parallel.max_restarts > 0) {
    setup.plan.notes.push_back(fmt::format("--max-restarts is left to {}, which started this rank.", setup.place->launcher));
  }

  // Machines that share a run must come to one name without talking.
  std::optional<std::string> label;
  if (setup.place)
    label = setup.place->run_label;
  else if (config.parallel.nnodes > 1)
    label = std::to_string(config.parallel.master_port > 0 ? config.parallel.master_port : launch::first_port);
  const RunName name = name_run(config, label);
  config.name = name.name;
  setup.new_name = name.is_new;
  if (!name.reason.empty()) setup.settings.sources["name"] = {config::Origin::derived, name.reason};
  if (config.checkpoint.resume == "auto" && journal::list_checkpoints(checkpoints_of(config)).empty()) {
    setup.plan.notes.push_back(
        fmt::format("--resume auto: there is no checkpoint in {} yet; the run starts anew.", checkpoints_of(config).string()));
  }
  job.folder.root = std::filesystem::path(config.output) / config.name;
  setup.plan.folder = job.folder.root.string();
  return setup;
}

void plan_for_world(Setup& setup) {
  const RunConfig& config = setup.settings.values;
  layout::mesh_of(config, setup.job.world_size);  // refuses what cannot be made, before a rank is started
  setup.plan.world_size = setup.job.world_size;
  setup.plan.batch = config::plan_batch(config, setup.job.world_size);
  setup.plan.backend = config::chosen_backend(config.trainer.distributed.backend, setup.job.world_size, setup.on_gpus);
  layout::MemoryWish wish{.ranks = setup.job.world_size, .on_gpu = setup.on_gpus};
  if (setup.gpu_bytes > 0) wish.device_bytes = setup.gpu_bytes;
  setup.plan.memory = layout::rank_memory(config, setup.plan.batch, wish);
  if (auto note = memory_note(setup)) setup.plan.notes.push_back(std::move(*note));
}

}  // namespace lockstep::job
