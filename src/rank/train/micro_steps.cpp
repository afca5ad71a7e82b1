// When to record, when to replay, and what to do where recording fails.
#include "rank/train/micro_steps.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include "base/error.h"
#include "base/log.h"
#include "rank/task/task.h"

namespace lockstep::train {
namespace {

std::vector<std::int64_t> shape_of(const data::Batch& batch) {
  std::vector<std::int64_t> shape = batch.tokens.sizes().vec();
  shape.push_back(batch.keys.defined() ? 1 : 0);
  return shape;
}

at::Tensor room_for(const at::Tensor& tensor) { return tensor.defined() ? tensor.clone() : at::Tensor(); }

void empty_cache(at::Device device) {
  if (!device.is_cpu()) at::getDeviceAllocator(device.type())->emptyCache();
}

}  // namespace

std::unique_ptr<kernels::GraphRecorder> graph_recorder_for(const config::RunConfig& config, at::Device device, bool fixed_shapes) {
  if (!config.trainer.cuda_graphs || !fixed_shapes) return nullptr;
  // Activations that come back from the host are awaited across micro-steps; a trace shows blocks by name only kernel by kernel.
  if (config.trainer.offload_checkpoints || config.monitor.profile_steps > 0) return nullptr;
  return kernels::make_graph_recorder(device);
}

MicroSteps::MicroSteps(model::Decoder& model, parallel::GradientSync* gradients, Options options)
    : model_(model), gradients_(gradients), options_(std::move(options)) {
  if (options_.on_backward)
    model_.on_backward([this] {
      if (!graph_in_hand_) options_.on_backward();
    });
}

MicroSteps::~MicroSteps() { model_.on_backward(nullptr); }

at::Tensor MicroSteps::run(const data::Batch& batch, const at::Tensor& scale) {
  const comm::Group* reduces = gradients_ ? gradients_->armed() : nullptr;
  replayed_ = ready_to_replay(batch, scale, reduces);
  if (!replayed_) return task::forward_backward(model_, batch, scale);
  const Recording& recording = recordings_[reduces ? 1 : 0];
  replay(recording, batch, reduces);
  return recording.loss;
}

// Records where it is time to.
bool MicroSteps::ready_to_replay(const data::Batch& batch, const at::Tensor& scale, const comm::Group* reduces) {
  if (!options_.recorder || batch.starts.defined()) return false;
  if (reduces && !reduces->recordable()) return false;
  if (const auto shape = shape_of(batch); shape != shape_) {
    if (inputs_.tokens.defined()) return false;  // one shape is recorded; another one that turns up now and then is not worth its memory
    shape_ = shape;
    of_this_shape_ = 0;
  }
  if (of_this_shape_ < options_.warm_up) {
    ++of_this_shape_;
    return false;
  }
  Recording& recording = recordings_[reduces ? 1 : 0];
  if (!recording.graph) record(recording, batch, scale, reduces);
  if (!recording.graph) return false;
  base::check(scale.is_same(scale_), "the loss's scale stays where it was recorded");
  return true;
}

void MicroSteps::record(Recording& recording, const data::Batch& batch, const at::Tensor& scale, const comm::Group* reduces) {
  if (!inputs_.tokens.defined()) {
    inputs_.tokens = room_for(batch.tokens);
    inputs_.targets = room_for(batch.targets);
    inputs_.keys = room_for(batch.keys);
    scale_ = scale;
  }
  // What was allocated kernel by kernel goes first: memory need not hold both.
  model_.release_buffers();
  empty_cache(batch.tokens.device());
  graph_in_hand_ = true;
  try {
    recording.graph = options_.recorder->record([this, &recording, reduces] {
      model_.release_buffers();  // also what that makes anew belongs to the graph
      recording.loss = task::forward_backward(model_, inputs_, scale_);
      if (reduces) gradients_->finish(*reduces);
    });
    base::log_info("micro-steps {} run as one CUDA graph from here on", reduces ? "that reduce gradients" : "that add gradients up");
  } catch (const c10::OutOfMemoryError&) {
    give_up("its memory does not fit beside what is there");
  } catch (const std::exception& error) {
    give_up(error.what());
  }
  graph_in_hand_ = false;
  if (reduces) gradients_->arm(*reduces);
}

void MicroSteps::replay(const Recording& recording, const data::Batch& batch, const comm::Group* reduces) {
  inputs_.tokens.copy_(batch.tokens, /*non_blocking=*/true);
  inputs_.targets.copy_(batch.targets, /*non_blocking=*/true);
  if (inputs_.keys.defined()) inputs_.keys.copy_(batch.keys, /*non_blocking=*/true);
  graph_in_hand_ = true;
  recording.graph->launch();
  graph_in_hand_ = false;
  if (reduces) gradients_->replayed(*reduces);
  if (options_.on_backward) options_.on_backward();
}

// Nothing was run and nothing is lost: from here on kernel by kernel.
void MicroSteps::give_up(const std::string& why) {
  base::log_info("micro-steps run kernel by kernel, not as a CUDA graph: {}", why.substr(0, why.find('\n')));
  const at::Device device = inputs_.tokens.device();
  recordings_ = {};
  inputs_ = {};
  options_.recorder.reset();
  model_.release_buffers();
  empty_cache(device);
}

}  // namespace lockstep::train
