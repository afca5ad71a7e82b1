// Runs micro-steps: kernel by kernel at first, then as one recorded CUDA graph that the host launches with a single call.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "rank/comm/comm.h"
#include "rank/data/data.h"
#include "rank/kernels/graph.h"
#include "rank/kernels/progress.h"
#include "rank/model/model.h"
#include "rank/parallel/gradient_sums.h"
#include "rank/parallel/gradient_sync.h"

namespace lockstep::train {

// What records the micro-steps of a run; null where they cannot be recorded, or trainer.cuda_graphs says not to. The same answer on
// every rank. fixed_shapes: every batch has the shape of every other, on all ranks.
std::unique_ptr<kernels::GraphRecorder> graph_recorder_for(const config::RunConfig& config, at::Device device, bool fixed_shapes);

// Whether a mark after every block costs nothing that could be measured: a mark takes some 2 microseconds, so a block must be large
// on a GPU. Where blocks are small a whole micro-step is short enough to be marked once.
bool blocks_are_long(const config::RunConfig& config, std::int64_t rows, at::Device device);

// A recorded micro-step reads its batch from buffers that each batch is copied into, and works in memory of its own: the model's
// activations are given back before recording, so that all of them are made within it. Whatever happens to the model's buffers later
// (an evaluation, a text, a batch of another shape), the graph's stay. Weights, gradients and the loss's scale stay where they are anyway.
// The micro-step that reduces gradients has a graph of its own, with the reduction in it, where the group's operations can be recorded.
//
// One thread, the device's current stream. The model and the gradients' sync must outlive it.
class MicroSteps {
 public:
  struct Options {
    std::unique_ptr<kernels::GraphRecorder> recorder = {};  // null: kernel by kernel, always
    std::int64_t warm_up = 3;                               // micro-steps of one shape before it is recorded: what is lazy is done then
    std::function<void()> on_backward = {};                 // between forward and backward, for phase stamps
    std::shared_ptr<kernels::Progress> progress = {};       // marked at the end of every micro-step, recorded or not
    bool mark_blocks = false;                               // and after every block, in both directions
    parallel::GradientSums* sums = nullptr;                 // where 16-bit gradients are added to too often; must outlive it
  };
  // gradients: may be null, where nothing is ever reduced.
  MicroSteps(model::Decoder& model, parallel::GradientSync* gradients, Options options);
  ~MicroSteps();
  MicroSteps(const MicroSteps&) = delete;

  // Adds the gradient of scale * (summed loss) to the model's units and returns the summed loss: f32 scalar on the device, good until
  // the next call.
  at::Tensor run(const data::Batch& batch, const at::Tensor& scale);
  // Collective. The same for the last micro-batch of a step, with all gradients being reduced over the ranks as they get complete;
  // GradientSync::finish() is still to follow.
  at::Tensor run_and_reduce(const comm::Group& ranks, const data::Batch& batch, const at::Tensor& scale);

  // Collective. Before other work (an evaluation, a text) that takes so many bytes: where a rank has not as much left, recordings go with
  // their memory and are made anew at the next micro-step.
  void make_room(const comm::Group& ranks, std::int64_t bytes);

  // Whether the last micro-step was a graph.
  bool replayed() const { return replayed_; }

 private:
  struct Recording {
    std::unique_ptr<kernels::Graph> graph;
    at::Tensor loss;
    std::int64_t head_additions = 0;
  };
  at::Tensor forward_backward(const data::Batch& batch, const at::Tensor& scale);
  bool may_be_recorded(const data::Batch& batch);
  void record(Recording& recording, const data::Batch& batch, const at::Tensor& scale, const std::function<void()>& finish);
  void record_adding(const data::Batch& batch, const at::Tensor& scale);
  void record_reduction(const comm::Group& ranks, const data::Batch& batch, const at::Tensor& scale);
  void fill_inputs(const data::Batch& batch, const at::Tensor& scale);
  void launch(const Recording& recording);
  void give_up(const std::string& why);
  void drop_recordings();

  model::Decoder& model_;
  parallel::GradientSync* gradients_;
  Options options_;
  const bool wanted_;                // graphs, whether or not they turn out to be possible
  std::vector<std::int64_t> shape_;  // of the batches that came last, or that are recorded
  std::int64_t of_this_shape_ = 0;   // micro-steps so far
  data::Batch inputs_;               // what graphs read; undefined until something is recorded
  at::Tensor scale_;
  Recording adding_, reducing_;
  bool accumulates_ = false;      // run() is called at all
  bool reduction_tried_ = false;  // from then on nothing more is recorded
  bool graph_in_hand_ = false;    // being recorded or launched: the model's own word of its backward is not for anyone
  bool replayed_ = false;
};

}  // namespace lockstep::train
