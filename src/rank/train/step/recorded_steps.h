// Micro-steps as CUDA graphs: what is recorded, the buffers that graphs read, and how they are launched.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rank/data/batch.h"
#include "rank/kernels/graph.h"
#include "rank/model/stage.h"
#include "rank/train/step/graph_policy.h"

namespace lockstep::train {

// A recorded micro-step reads its batch from buffers that each batch is copied into, and works in memory of its own: the model's
// activations are given back before recording, so that all of them are made within it. Whatever happens to the model's buffers later
// (an evaluation, a text, a batch of another shape), the graph's stay. Weights, gradients and the loss's scale stay where they are anyway.
// Graphs share their memory: one at a time runs, and each begins with nothing in it.
//
// One thread, the device's current stream. The model must outlive it.
class RecordedSteps {
 public:
  // recorder: null where nothing is ever recorded. largest_batch: 0 where every batch has one shape; else how many numbers a field of the
  // largest one has. There memory must hold the largest micro-step twice, once for graphs and once for batches that have none.
  RecordedSteps(std::unique_ptr<kernels::GraphRecorder> recorder, model::Stage& model, std::int64_t largest_batch = 0);

  // A whole micro-step on these inputs, loss returned.
  using Work = std::function<at::Tensor(const data::Batch& inputs, const at::Tensor& scale)>;
  // Records it unless it is there. Where that fails nothing was run and nothing is lost, but nothing will be recorded any more.
  void record(const GraphKey& key, const data::Batch& like, const at::Tensor& scale, const Work& work);
  bool has(const GraphKey& key) const;

  // The batch that the next launch is of; like the one that was recorded.
  void fill(const GraphPlace& place, const data::Batch& batch, const at::Tensor& scale);
  // The summed loss: f32 scalar on the device, good until the next launch.
  const at::Tensor& launch(const GraphKey& key) const;
  std::int64_t additions(const GraphKey& key) const;

  // Whether one more may be recorded.
  bool may_record() const { return recorder_ != nullptr && !full_; }
  // From here on kernel by kernel; the log says why.
  void give_up(const std::string& why);
  // Whether recordings take memory.
  bool hold_memory() const { return !places_.empty(); }
  // Recordings and their memory, to be made anew: of one place, or all.
  void drop(const GraphPlace& place);
  void drop();

 private:
  struct Recording {
    std::unique_ptr<kernels::Graph> graph;
    at::Tensor loss;
    std::int64_t additions = 0;
  };
  struct OfPlace {
    GraphPlace place;
    data::Batch inputs;                        // what its graphs read
    std::array<Recording, 4> recordings = {};  // by GraphKey::index()
  };
  OfPlace* find(const GraphPlace& place) const;
  const Recording& of(const GraphKey& key) const;
  OfPlace& make(const GraphPlace& place, const data::Batch& like);
  bool fits(const data::Batch& batch, std::int64_t taken) const;

  std::unique_ptr<kernels::GraphRecorder> recorder_;
  model::Stage& model_;
  const std::int64_t largest_batch_;
  bool full_ = false;  // memory takes no more of them
  at::Tensor scale_;
  std::vector<std::unique_ptr<OfPlace>> places_;  // where each is stays: graphs read there
};

}  // namespace lockstep::train
