// Puts a run together, in the order things are made: world, data, model, weights, optimizer, checkpoint, batches.
#include <ATen/Context.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/system/host_memory.h"
#include "rank/comm/ledger.h"
#include "rank/parallel/base_fingerprint.h"
#include "rank/train/memory/fit_batch.h"
#include "rank/train/resume/from_first.h"
#include "rank/train/make_model.h"
#include "rank/train/resume/resume.h"
#include "rank/train/run.h"
#include "rank/train/resume/state.h"
#include "rank/train/train_step.h"
#include "journal/lease.h"
#include "journal/scalars/tensorboard.h"
#include "layout/tables.h"

namespace lockstep::train {
namespace {

data::Loader::Options loader_options(const Run& run) {
  return {.batch_size = run.batch.batch_size,
          .gradient_accumulation = run.batch.gradient_accumulation,
          .shard = {run.mesh->data().rank(), run.mesh->data().size()},
          .seed = run.config.trainer.seed,
          .shuffle = run.config.data.shuffle,
          .prefetch = run.config.data.prefetch,
          .workers = run.config.data.workers,
          .pin_memory = run.config.data.pin_memory && !run.world->device().is_cpu()};
}

// What a rank may fill with copies of what it saves: free memory is for batches and for what others on the machine do, too.
std::uint64_t staging_bytes(const Run& run) {
  constexpr std::uint64_t least = 64u << 20;
  if (const std::int64_t asked_mb = run.config.checkpoint.staging_mb; asked_mb > 0) return static_cast<std::uint64_t>(asked_mb) * 1'000'000;
  return std::max(least, base::look_at_host_memory().usable() / 2 / static_cast<std::uint64_t>(run.world->place().local_world_size));
}

checkpoint::Saver::Options saver_options(const Run& run) {
  return {.folder = checkpoints_folder(run.config, run.folder),
          .share = {run.mesh->everyone().rank(), run.mesh->everyone().size()},
          .several_machines = run.world->place().local_world_size < run.world->place().world_size,
          .keep = run.config.trainer.max_checkpoints,
          .asynchronous = run.config.checkpoint.asynchronous,
          .staging_bytes = staging_bytes(run),
          .may_write = [folder = run.folder.root, token = run.lease] {
            if (journal::lease_is(folder, token)) return;
            throw base::checkpoint_error("checkpoint", "another process has taken over {}: nothing more is written there", folder.string());
          }};
}

journal::MetricsWriter::Options metrics_options(const Run& run, const std::optional<std::filesystem::path>& checkpoint) {
  return {.resumed_at_step = run.progress.step, .history = history_of(run, checkpoint), .say = [page = run.page](std::string_view text) {
            page->set_notice(text);
          }};
}

// Marks that the device makes show up in the page: a device at work is no stall, however long the host waits for it.
std::shared_ptr<kernels::Progress> watched_progress(comm::World& world, const std::shared_ptr<journal::PageWriter>& page,
                                                    const Faults& faults) {
  if (faults.hides_progress()) return nullptr;
  auto progress = kernels::make_progress(world.device());
  world.watch([progress, page, seen = std::uint64_t{0}]() mutable {
    const std::uint64_t count = progress->count();
    if (std::exchange(seen, count) != count) page->note_progress();
  });
  return progress;
}

void connect(Run& run, const RunRequest& request) {
  run.page->set_phase(journal::Phase::connecting, 0);
  run.world = std::make_unique<comm::World>(comm::World::Options{.place = request.place,
                                                                 .backend = run.config.trainer.distributed.backend,
                                                                 .device = request.device,
                                                                 .timeout_s = run.config.parallel.timeout_s,
                                                                 .nccl = run.faults.broken_nccl(),
                                                                 .links = request.links},
                                            run.page);
  run.time = std::make_shared<TimeSplit>(request.device, request.timeline);
  run.world->ledger().on_wait = [time = run.time](bool begins, std::string_view kind) { time->wait(begins, kind); };
  run.mesh = std::make_unique<comm::Mesh>(*run.world, layout::mesh_of(run.config, request.place.world_size));
  run.batch = config::plan_batch(run.config, run.mesh->data().size());
}

void connect_gradients(Run& run) {
  run.gradients = run.replica.exchange;
  if (run.gradients != nullptr) return;
  run.gradient_sync =
      std::make_unique<parallel::GradientSync>(run.replica.gradients.front().memory, *run.replica.store, run.config.parallel);
  run.gradients = run.gradient_sync.get();
}

std::unique_ptr<MicroSteps> make_micro_steps(Run& run, std::shared_ptr<Timeline> timeline) {
  const at::Device device = run.world->device();
  const data::Source& data = *run.task->training();
  const comm::Group& ranks = run.mesh->loss();
  const std::int64_t rows = run.batch.batch_size * run.config.data.seq_len;
  return std::make_unique<MicroSteps>(
      *run.task, *run.model, *run.gradients, ranks,
      MicroSteps::Options{.recorder = graph_recorder_for(run.config, device),
                          .same_shapes = data.fixed_shapes() || ranks.size() == 1,
                          .largest_batch = data.fixed_shapes() ? 0 : rows,
                          .progress = with_blocks_on(std::move(timeline), watched_progress(*run.world, run.page, run.faults)),
                          .mark_blocks = blocks_are_long(run.config, rows, device),
                          .time = run.time,
                          .store = run.replica.store->opens_together() ? run.replica.store.get() : nullptr,
                          .sums = run.gradient_sums.get()});
}

// Where the run starts from, and what a person should know of it.
struct Start {
  std::optional<std::filesystem::path> checkpoint;
  std::optional<Restored> restored;
  std::vector<std::string> notes;
};

// Every rank reads files, or computes first weights, by itself, all at once; fingerprints tell if one of them came to something else.
Start load(Run& run) {
  const comm::Group &everyone = run.mesh->everyone(), &replicas = run.same_weights();
  run.page->set_phase(journal::Phase::loading, 0);
  run.faults.at(journal::Phase::loading, 0, everyone);
  Start start;
  if (!run.folder.root.empty()) {
    const Found found = find_checkpoint(everyone, run.config, run.folder);
    start.checkpoint = found.checkpoint;
    for (const std::string& why : found.skipped) start.notes.push_back("warning: a checkpoint was passed over: " + why);
  }
  // Frozen weights come from where they came from first; a checkpoint holds what is trained.
  if (!start.checkpoint || run.config.lora.enabled) {
    if (run.config.model.path.empty())
      initialize_weights(run.config, run.replica);
    else
      for (std::string& note : load_weights(run.config, run.replica)) start.notes.push_back(std::move(note));
  }
  everyone.meet("loading weights");
  run.replica.store->updated();
  initialize_adapters(run.config, run.replica, *run.model);
  if (run.config.lora.enabled) run.base_fingerprint = parallel::base_fingerprint(run.replica);
  if (start.checkpoint) {
    start.restored = restore(run, *start.checkpoint);
    start.notes.insert(start.notes.end(), start.restored->notes.begin(), start.restored->notes.end());
  }
  everyone.meet("loading a checkpoint");
  // DoRA's first magnitudes are sums, which machines with different processors round differently.
  if (run.config.lora.dora && !start.checkpoint) parallel::broadcast_weights(replicas, run.replica);
  run.replica.store->updated();
  parallel::verify_equal(replicas, run.replica, run.progress.step);
  parallel::verify_frozen_equal(run.same_units(), run.replica);
  return start;
}

// What the run writes into its folder as it goes, beside checkpoints. Rank 0.
void open_journal(Run& run, const Start& start) {
  run.metrics = std::make_unique<journal::MetricsWriter>(run.folder.metrics(), metrics_options(run, start.checkpoint));
  run.metrics->write_event(nlohmann::json{
      {"event", "model"},
      {"parameters", run.replica.parameters()},
      {"trained_parameters", run.replica.trained_parameters()},
      {"data", run.task->description()},
      {"backend", config::name_of(run.world->backend())},
      {"total_steps", run.total_steps},
      {"gradients", run.gradient_form},
      {"deterministic", at::globalContext().deterministicAlgorithms()},
      {"activations",
       run.recompute}}.dump());
  run.control = std::make_unique<journal::ControlReader>(run.folder.control(), run.lease);
  if (run.config.monitor.tensorboard)
    run.scalars.push_back(std::make_unique<journal::TensorBoardWriter>(run.folder.root / "tensorboard", run.progress.step));
  if (!run.world->fallback().empty()) run.note(run.world->fallback());
  for (const std::string& note : start.notes) run.note(note);
  if (start.checkpoint) run.note(fmt::format("resumed from {} at step {}", start.checkpoint->string(), run.progress.step));
}

}  // namespace

void Run::note(std::string_view text) const {
  base::log_info("{}", text);
  if (metrics) metrics->write_event(nlohmann::json{{"event", "note"}, {"text", text}}.dump());
}

std::unique_ptr<Run> build_run(const RunRequest& request) {
  auto run = std::make_unique<Run>();
  run->session = std::make_unique<kernels::Session>(request.device, request.config.trainer.deterministic);
  run->config = request.config;
  run->config.model = config::with_defaults(run->config.model);
  run->folder = {request.folder};
  run->page = request.page;
  run->faults = Faults::from_environment(request.place.rank);
  run->asked_to_stop = request.asked_to_stop;
  run->lease = request.lease;
  run->free_bytes = request.free_bytes;
  connect(*run, request);
  const comm::Group& everyone = run->mesh->everyone();

  run->page->set_phase(journal::Phase::building, 0);
  run->task = open_task(run->mesh->data(), run->config);
  run->replica = make_units(run->config, request.device, run->mesh.get());
  if (request.units) request.units(run->replica);
  run->model = run->task->make_model(*run->replica.store);
  choose_precision(run->config, *run->model, request.device);
  run->optimizer = optim::make_optimizer(run->config, *run->replica.store, run->nominal_trained());
  everyone.meet("building the model");
  choose_memory(everyone, *run);
  const std::string fitted = fit_batch_size(everyone, *run);
  connect_gradients(*run);
  run->micro_steps = make_micro_steps(*run, request.timeline);
  run->totals = std::make_unique<model::Totals>(sums_of_a_step(everyone.size(), run->optimizer->square_sums()), request.device);

  Start start = load(*run);
  if (!fitted.empty()) start.notes.insert(start.notes.begin(), fitted);
  run->batches = request.batches ? request.batches(*run)
                                 : open_batches(run->config.data.distributed_loading, run->task->training(), loader_options(*run),
                                                run->progress.position);
  for (std::string& note : plan_steps(*run, start.restored)) start.notes.push_back(std::move(note));
  if (run->folder.root.empty()) return run;  // nothing is written
  if (run->is_first()) {
    if (std::string note = end_timeline(*run, start.checkpoint); !note.empty()) start.notes.push_back(std::move(note));
  }
  run->saver = std::make_unique<checkpoint::Saver>(run->faults.files(), saver_options(*run));
  if (run->is_first()) open_journal(*run, start);
  return run;
}

}  // namespace lockstep::train
