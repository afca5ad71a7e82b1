// Records, copies batches in, launches, and gives up where a device refuses.
#include "rank/train/step/recorded_steps.h"

#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include "base/error.h"
#include "base/log.h"
#include "rank/train/memory/device_memory.h"

namespace lockstep::train {
namespace {

at::Tensor room_for(const at::Tensor& tensor) { return tensor.defined() ? at::empty_like(tensor) : at::Tensor(); }

}  // namespace

RecordedSteps::RecordedSteps(std::unique_ptr<kernels::GraphRecorder> recorder, model::Stage& model)
    : recorder_(std::move(recorder)), model_(model) {}

void RecordedSteps::record(MicroKind kind, const data::Batch& like, const at::Tensor& scale, const Work& work) {
  if (!recorder_ || has(kind)) return;
  if (!hold_memory()) {
    for (const at::Tensor& field : like.on_device) inputs_.on_device.push_back(room_for(field));
    inputs_.on_host = like.on_host;
    scale_ = scale;
  }
  // What was allocated kernel by kernel goes first: memory need not hold both.
  model_.release_buffers();
  empty_cache(scale.device());
  try {
    Recording& recording = of(kind);
    recording.graph = recorder_->record([this, &recording, work] {
      model_.release_buffers();  // what that makes anew is to belong to the graph as well
      recording.loss = work(inputs_, scale_);
      recording.additions = model_.additions();
    });
  } catch (const c10::OutOfMemoryError&) {
    give_up("its memory does not fit beside what is there");
  } catch (const std::exception& error) {
    give_up(error.what());
  }
}

void RecordedSteps::fill(const data::Batch& batch, const at::Tensor& scale) {
  base::check(scale.is_same(scale_), "the loss's scale stays where it was recorded");
  for (std::size_t i = 0; i < inputs_.on_device.size(); ++i) {
    if (inputs_.on_device[i].defined()) inputs_.on_device[i].copy_(batch.on_device[i], /*non_blocking=*/true);
  }
}

const at::Tensor& RecordedSteps::launch(MicroKind kind) const {
  of(kind).graph->launch();
  return of(kind).loss;
}

void RecordedSteps::give_up(const std::string& why) {
  base::log_info("micro-steps run kernel by kernel, not as a CUDA graph: {}", why.substr(0, why.find('\n')));
  recorder_.reset();
  drop();
}

void RecordedSteps::drop() {
  for (Recording& recording : recordings_) recording = {};
  inputs_ = {};
  model_.release_buffers();
  empty_cache(scale_.device());
}

}  // namespace lockstep::train
