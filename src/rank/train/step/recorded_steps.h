// Micro-steps as CUDA graphs: what is recorded, the buffers that graphs read, and how they are launched.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "rank/data/batch.h"
#include "rank/kernels/graph.h"
#include "rank/model/stage.h"
#include "rank/train/step/graph_policy.h"

namespace lockstep::train {

// A recorded micro-step reads its batch from buffers that each batch is copied into, and works in memory of its own: the model's
// activations are given back before recording, so that all of them are made within it. Whatever happens to the model's buffers later
// (an evaluation, a text, a batch of another shape), the graph's stay. Weights, gradients and the loss's scale stay where they are anyway.
//
// One thread, the device's current stream. The model must outlive it.
class RecordedSteps {
 public:
  // recorder: null where nothing is ever recorded.
  RecordedSteps(std::unique_ptr<kernels::GraphRecorder> recorder, model::Stage& model);

  // A whole micro-step on these inputs, loss returned.
  using Work = std::function<at::Tensor(const data::Batch& inputs, const at::Tensor& scale)>;
  // Records it unless it is there. Where that fails nothing was run and nothing is lost, but nothing will be recorded any more.
  void record(MicroKind kind, const data::Batch& like, const at::Tensor& scale, const Work& work);
  bool has(MicroKind kind) const { return of(kind).graph != nullptr; }

  // The batch that the next launch is of; like the one that was recorded.
  void fill(const data::Batch& batch, const at::Tensor& scale);
  // The summed loss: f32 scalar on the device, good until the next launch.
  const at::Tensor& launch(MicroKind kind) const;
  std::int64_t additions(MicroKind kind) const { return of(kind).additions; }

  // From here on kernel by kernel; the log says why.
  void give_up(const std::string& why);
  // Whether recordings take memory.
  bool hold_memory() const { return !inputs_.on_device.empty(); }
  // Recordings and their memory, to be made anew.
  void drop();

 private:
  struct Recording {
    std::unique_ptr<kernels::Graph> graph;
    at::Tensor loss;
    std::int64_t additions = 0;
  };
  Recording& of(MicroKind kind) { return recordings_[static_cast<std::size_t>(kind)]; }
  const Recording& of(MicroKind kind) const { return recordings_[static_cast<std::size_t>(kind)]; }

  std::unique_ptr<kernels::GraphRecorder> recorder_;
  model::Stage& model_;
  data::Batch inputs_;  // what graphs read; no fields until something is recorded
  at::Tensor scale_;
  std::array<Recording, 2> recordings_;  // by MicroKind
};

}  // namespace lockstep::train
