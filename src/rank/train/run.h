// Everything one rank trains with. build_run.cpp makes it, train_step.cpp uses it, loop.cpp drives it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "config/config.h"
#include "rank/checkpoint/checkpoint.h"
#include "rank/comm/mesh.h"
#include "rank/data/data.h"
#include "rank/kernels/session.h"
#include "rank/model/stage.h"
#include "rank/model/sums/totals.h"
#include "rank/optim/optim.h"
#include "rank/parallel/gradient_sums.h"
#include "rank/parallel/gradient_sync.h"
#include "rank/parallel/replicate.h"
#include "rank/task/task.h"
#include "rank/train/step/batches.h"
#include "rank/train/watch/faults.h"
#include "rank/train/watch/time_split.h"
#include "rank/train/step/micro_steps.h"
#include "journal/control.h"
#include "journal/metrics.h"
#include "journal/page.h"
#include "journal/run_folder.h"
#include "journal/scalars/scalars.h"

namespace lockstep::train {

// What a checkpoint keeps beside tensors.
struct Progress {
  std::int64_t step = 0;     // finished steps
  std::int64_t trained = 0;  // of what the task counts
  std::int64_t skipped = 0;
  data::Position position;
  struct Best {
    std::int64_t step;
    double loss;
  };
  std::optional<Best> best;  // evaluation so far, where trainer.keep_best asks for it
  // Where training goes by epochs: how far the schedule of the learning rate is ahead of `step`, after a change of the global batch.
  std::int64_t schedule_offset = 0;
};

struct StepOutcome;

// What moves without a gradient: averages of the weights, biases that balance experts.
class AfterUpdate {
 public:
  virtual ~AfterUpdate() = default;
  // On the device's stream, after every update: of what this rank updates (the store's updates(), all of it or shards), and
  // outcome.totals, which are the same on every rank. outcome.control says whether the step was skipped; reading it would make the device
  // wait.
  virtual void follow(const StepOutcome& outcome) = 0;
};

struct Run {
  std::unique_ptr<kernels::Session> session;  // first, so that it ends last
  config::RunConfig config;
  config::BatchPlan batch;
  journal::RunFolder folder;
  std::shared_ptr<journal::PageWriter> page;
  Faults faults;
  std::unique_ptr<comm::World> world;
  std::shared_ptr<TimeSplit> time;
  std::unique_ptr<comm::Mesh> mesh;
  std::unique_ptr<task::Task> task;
  parallel::Replica replica;
  std::unique_ptr<model::Stage> model;
  std::unique_ptr<parallel::GradientSums> gradient_sums;  // null where gradients need none behind them
  std::unique_ptr<parallel::GradientSync> gradient_sync;  // of whole units
  parallel::Exchange* gradients = nullptr;                // that, or the store of units in shards
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<MicroSteps> micro_steps;
  std::unique_ptr<model::Totals> totals;  // of a step
  std::vector<std::unique_ptr<AfterUpdate>> after_update;
  std::unique_ptr<BatchSource> batches;
  std::unique_ptr<checkpoint::Saver> saver;
  std::unique_ptr<journal::MetricsWriter> metrics;              // rank 0 only
  std::unique_ptr<journal::ControlReader> control;              // rank 0 only
  std::vector<std::unique_ptr<journal::ScalarWriter>> scalars;  // rank 0, where monitor.tensorboard asks for it
  std::function<bool()> asked_to_stop;                          // this rank, by something other than the control file
  std::string lease;                                            // by which this start of the run owns its folder; empty where nobody does
  Progress progress;
  std::int64_t total_steps = 0;
  std::optional<std::int64_t> free_bytes;  // of the device, where it is not asked
  std::string recompute;                   // what blocks keep for backward, in words
  std::string base_fingerprint;            // of frozen weights; empty where there are none
  std::string gradient_form;               // what micro-batches are summed in, in words

  bool is_first() const { return world->place().rank == 0; }
  // Who holds the same trained weights: all who split the samples, unless those are in shards.
  const comm::Group& same_weights() const { return replica.exchange ? mesh->along(layout::Axis::replicate) : mesh->data(); }
  // Who holds the same of the model's units, trained or frozen.
  const comm::Group& same_units() const { return replica.units.front()->shard() ? mesh->along(layout::Axis::replicate) : mesh->data(); }
  // What a full global batch trains: gradients of the summed loss are scaled by 1/this, so that no dtype overflows.
  double nominal_trained() const { return static_cast<double>(batch.global_batch_size * task->training()->sample_size()); }

  // Of the step that comes next.
  double learning_rate() const {
    const std::int64_t offset = config.trainer.max_steps > 0 ? 0 : progress.schedule_offset;
    return optim::learning_rate(config.trainer, batch.learning_rate, progress.step + offset, total_steps + offset);
  }

  // Stamps the page, counts time for what comes, and breaks where a test asked for it.
  void enter(journal::Phase phase) const {
    page->set_phase(phase, progress.step + 1);
    const bool told_by_graph = micro_steps->replayed() && (phase == journal::Phase::forward || phase == journal::Phase::backward);
    if (!told_by_graph) time->enter(part_of(phase));
    faults.at(phase, progress.step + 1, mesh->everyone());
  }
  void note(std::string_view text) const;  // to the log and, on rank 0, to metrics.jsonl
};

struct RunRequest {
  config::RunConfig config;
  std::filesystem::path folder;  // empty: nothing is written, and nothing can be saved
  at::Device device = at::kCPU;
  comm::Place place;
  std::shared_ptr<journal::PageWriter> page;
  std::string lease = {};
  std::function<bool()> asked_to_stop = [] { return false; };            // looked at in every step: finish it, save and leave
  std::function<std::unique_ptr<BatchSource>(const Run&)> batches = {};  // empty: of the data that the settings name
  std::optional<comm::ModelledLinks> links = {};                         // of a world whose other ranks are not there
  std::shared_ptr<Timeline> timeline = {};                               // is told what happens when; null: nobody is
  std::optional<std::int64_t> free_bytes = {};                           // what is taken to be free of the device; nothing: it is asked
  std::function<void(parallel::Replica&)> units = {};                    // is shown them before anything holds on to them or their store
};
// Collective over the world it connects. Several may follow one another in a process: what a run sets for all of it ends with the run.
std::unique_ptr<Run> build_run(const RunRequest& request);

// Trains to the end or until stopped. Collective.
void train(Run& run);

}  // namespace lockstep::train
