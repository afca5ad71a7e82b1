// Records, copies batches in, launches, and gives up where a device refuses.
#include "rank/train/step/recorded_steps.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "rank/train/memory/device_memory.h"

namespace lockstep::train {
namespace {

std::int64_t bytes_of(const model::Stage::Held& held) { return held.activations + held.dense_copy + held.logits; }

}  // namespace

RecordedSteps::RecordedSteps(std::unique_ptr<kernels::GraphRecorder> recorder, model::Stage& model, std::int64_t largest_batch)
    : recorder_(std::move(recorder)), model_(model), largest_batch_(largest_batch) {}

RecordedSteps::OfPlace* RecordedSteps::find(const GraphPlace& place) const {
  const auto found = std::find_if(places_.begin(), places_.end(), [&](const auto& one) { return one->place == place; });
  return found == places_.end() ? nullptr : found->get();
}

const RecordedSteps::Recording& RecordedSteps::of(const GraphKey& key) const { return find(key.place)->recordings[key.index()]; }

bool RecordedSteps::has(const GraphKey& key) const { return find(key.place) != nullptr && of(key).graph != nullptr; }

std::int64_t RecordedSteps::additions(const GraphKey& key) const { return of(key).additions; }

RecordedSteps::OfPlace& RecordedSteps::make(const GraphPlace& place, const data::Batch& like) {
  if (OfPlace* made = find(place)) return *made;
  OfPlace& made = *places_.emplace_back(std::make_unique<OfPlace>(OfPlace{.place = place, .inputs = {}}));
  for (const at::Tensor& field : like.on_device) made.inputs.on_device.push_back(field.defined() ? field.clone() : at::Tensor());
  made.inputs.on_host = like.on_host;
  return made;
}

// taken: by a micro-step of this batch, kernel by kernel.
bool RecordedSteps::fits(const data::Batch& batch, std::int64_t taken) const {
  const at::Tensor& field = batch.on_device.front();
  const double largest = static_cast<double>(taken) * static_cast<double>(largest_batch_) / static_cast<double>(field.numel());
  return static_cast<double>(free_memory_bytes(field.device())) >= 2.25 * largest;  // what allocators cannot use again included
}

void RecordedSteps::record(const GraphKey& key, const data::Batch& like, const at::Tensor& scale, const Work& work) {
  if (!recorder_ || full_ || has(key)) return;
  scale_ = scale;
  const std::int64_t taken = largest_batch_ > 0 ? bytes_of(model_.held()) : 0;
  // What was allocated kernel by kernel goes first: memory need not hold both.
  model_.release_buffers();
  empty_cache(scale.device());
  if (largest_batch_ > 0 && !fits(like, taken)) {
    full_ = true;
    base::log_info(
        "batches of {} shapes run as CUDA graphs, others kernel by kernel: for one more, memory would have to hold the largest "
        "micro-batch twice, among graphs and beside them",
        places_.size());
    return;
  }
  OfPlace& place = make(key.place, like);
  Recording& recording = place.recordings[key.index()];
  try {
    recording.graph = recorder_->record([this, &place, &recording, work] {
      model_.release_buffers();  // what that makes anew is to belong to the graph as well
      recording.loss = work(place.inputs, scale_);
      recording.additions = model_.additions();
    });
  } catch (const c10::OutOfMemoryError&) {
    give_up("its memory does not fit beside what is there");
  } catch (const std::exception& error) {
    give_up(error.what());
  }
}

void RecordedSteps::fill(const GraphPlace& place, const data::Batch& batch, const at::Tensor& scale) {
  base::check(scale.is_same(scale_), "the loss's scale stays where it was recorded");
  const std::vector<at::Tensor>& inputs = find(place)->inputs.on_device;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].defined()) inputs[i].copy_(batch.on_device[i], /*non_blocking=*/true);
  }
}

const at::Tensor& RecordedSteps::launch(const GraphKey& key) const {
  const Recording& recording = of(key);
  recording.graph->launch();
  return recording.loss;
}

void RecordedSteps::give_up(const std::string& why) {
  base::log_info("micro-steps run kernel by kernel, not as a CUDA graph: {}", why.substr(0, why.find('\n')));
  recorder_.reset();
  drop();
}

void RecordedSteps::drop(const GraphPlace& place) {
  std::erase_if(places_, [&](const auto& one) { return one->place == place; });
}

void RecordedSteps::drop() {
  places_.clear();
  full_ = false;
  model_.release_buffers();
  empty_cache(scale_.device());
}

}  // namespace lockstep::train
