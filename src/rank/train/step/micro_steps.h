// Runs micro-steps: kernel by kernel at first, then as one recorded CUDA graph that the host launches with a single call.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "config/run_config.h"
#include "rank/comm/comm.h"
#include "rank/data/batch.h"
#include "rank/kernels/graph.h"
#include "rank/kernels/progress.h"
#include "rank/model/stage.h"
#include "rank/parallel/gradient_sums.h"
#include "rank/parallel/exchange.h"
#include "rank/parallel/rank_store.h"
#include "rank/task/task.h"
#include "rank/train/step/graph_policy.h"
#include "rank/train/step/recorded_steps.h"
#include "rank/train/watch/time_split.h"

namespace lockstep::train {

// What records the micro-steps of a run; null where they cannot be recorded, or trainer.cuda_graphs says not to. The same answer on
// every rank.
std::unique_ptr<kernels::GraphRecorder> graph_recorder_for(const config::RunConfig& config, at::Device device);

// Whether a mark after every block costs nothing that could be measured: a mark takes some 2 microseconds, so a block must be large
// on a GPU. Where blocks are small a whole micro-step is short enough to be marked once.
bool blocks_are_long(const config::RunConfig& config, std::int64_t rows, at::Device device);

// Forward and backward of one micro-batch after another. The last of a step has its gradients reduced over the ranks as they get complete;
// where the group's operations can be recorded the reduction is part of that micro-step's graph. When a graph is made is GraphPolicy's,
// what it holds is RecordedSteps'.
//
// One thread, the device's current stream. Collective over `ranks` for the last micro-batch of a step and in make_room(). Task, model,
// gradients' sync and ranks must outlive it.
class MicroSteps {
 public:
  struct Options {
    std::unique_ptr<kernels::GraphRecorder> recorder = {};  // null: kernel by kernel, always
    std::int64_t warm_up = 3;                               // micro-steps of one shape before it is recorded
    std::size_t most_shapes = 16;                           // whose graphs live beside each other
    bool same_shapes = true;                                // all ranks see batches of the same shapes in the same order
    std::int64_t largest_batch = 0;                         // where shapes differ: rows of tokens, or the like, of the largest one
    std::shared_ptr<kernels::Progress> progress = {};       // marked at the end of every micro-step, recorded or not
    bool mark_blocks = false;                               // and after every block, in both directions
    std::shared_ptr<TimeSplit> time = {};                   // counts the parts of recorded micro-steps
    bool records_host = false;                              // the recorder has what the host does too: one of a test
    parallel::RankStore* store = nullptr;                   // whose units ranks open together; must outlive it
    parallel::GradientSums* sums = nullptr;                 // where 16-bit gradients are added to too often; must outlive it
  };
  MicroSteps(const task::Task& task, model::Stage& model, parallel::Exchange& gradients, const comm::Group& ranks, Options options);
  ~MicroSteps();
  MicroSteps(const MicroSteps&) = delete;

  // Forward of a micro-batch. Where a graph holds both directions nothing runs yet. micro: its place in the step.
  void forward(const data::Batch& batch, const at::Tensor& scale, const model::Micro& micro);
  // Of the same micro-batch: adds the gradient of scale * (summed loss) to the model's units and returns the summed loss: f32 scalar on
  // the device, good until the next call. After the last of a step, GradientSync::finish() is still to follow.
  at::Tensor backward();

  // Collective over `everyone`. Before other work (an evaluation, a text) that takes so many bytes: where a rank has not as much left,
  // recordings go with their memory and are made anew at the next micro-step.
  void make_room(const comm::Group& everyone, std::int64_t bytes);

  // Whether the last micro-step was a graph.
  bool replayed() const { return replayed_; }

 private:
  void begin(GraphAction action, const data::Batch& batch, const model::Micro& micro);
  at::Tensor end(const at::Tensor& scale);
  void count_recorded(journal::Part part) const;
  void record(GraphAction action, const data::Batch& batch, const at::Tensor& scale, const model::Micro& micro);
  void record_reduction(const data::Batch& batch, const at::Tensor& scale, const model::Micro& micro);
  void record_together(const data::Batch& batch, const at::Tensor& scale);
  // All that a recording knows of a step's last micro-batch is that it reduces.
  model::Micro as_recorded() const { return {.index = micro_.index, .first = micro_.first, .last = key_.action == GraphAction::reduces}; }

  const task::Task& task_;
  model::Stage& model_;
  parallel::Exchange& gradients_;
  const comm::Group& ranks_;
  std::shared_ptr<kernels::Progress> progress_;
  parallel::RankStore* store_;
  parallel::GradientSums* sums_;
  std::shared_ptr<TimeSplit> time_;
  const bool same_shapes_, records_host_;
  GraphPolicy policy_;
  RecordedSteps graphs_;
  // Of the micro-step that is between forward and backward:
  GraphKey key_;
  at::Tensor scale_;
  model::Micro micro_ = {};
  bool replayed_ = false;
};

}  // namespace lockstep::train
