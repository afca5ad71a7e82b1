// When to record, when to replay, and what to do where recording fails.
#include "rank/train/micro_steps.h"

#include <c10/util/Exception.h>

#include "base/error.h"
#include "base/log.h"
#include "layout/flops.h"
#include "rank/task/task.h"
#include "rank/train/device_memory.h"

namespace lockstep::train {
namespace {

std::vector<std::int64_t> shape_of(const data::Batch& batch) {
  std::vector<std::int64_t> shape = batch.tokens.sizes().vec();
  shape.push_back(batch.keys.defined() ? 1 : 0);
  shape.push_back(batch.starts.defined() ? 1 : 0);
  return shape;
}

at::Tensor room_for(const at::Tensor& tensor) { return tensor.defined() ? at::empty_like(tensor) : at::Tensor(); }

// Whether a recorded collective is launched must be the same on all ranks, so one that cannot speaks for all.
constexpr std::string_view kAgreement = "whether micro-steps are recorded";

}  // namespace

std::unique_ptr<kernels::GraphRecorder> graph_recorder_for(const config::RunConfig& config, at::Device device, bool fixed_shapes) {
  if (!config.trainer.cuda_graphs || !fixed_shapes) return nullptr;
  // Activations that come back from the host are awaited across micro-steps; a trace shows blocks by name only kernel by kernel.
  if (config.trainer.offload_checkpoints || config.monitor.profile_steps > 0) return nullptr;
  return kernels::make_graph_recorder(device);
}

bool blocks_are_long(const config::RunConfig& config, std::int64_t rows, at::Device device) {
  if (device.is_cpu()) return true;
  constexpr double long_flops = 1e12;  // a forward of 2 ms on an H200
  const double token = layout::flops_per_token(config.model, config.lora, config.data.seq_len).total();
  const double forward = token / (config.lora.enabled ? 2 : 3) * static_cast<double>(rows);  // frozen weights have no gradient
  return forward / static_cast<double>(config.model.num_layers) > long_flops;
}

MicroSteps::MicroSteps(model::Decoder& model, parallel::GradientSync* gradients, Options options)
    : model_(model), gradients_(gradients), options_(std::move(options)), wanted_(options_.recorder != nullptr) {
  if (options_.on_backward)
    model_.on_backward([this] {
      if (!graph_in_hand_) options_.on_backward();
    });
  if (options_.progress && options_.mark_blocks) model_.on_block([this] { options_.progress->mark(); });
}

MicroSteps::~MicroSteps() {
  model_.on_backward(nullptr);
  model_.on_block([] {});
}

at::Tensor MicroSteps::forward_backward(const data::Batch& batch, const at::Tensor& scale) {
  const at::Tensor loss = task::forward_backward(model_, batch, scale);
  if (options_.progress) options_.progress->mark();
  return loss;
}

at::Tensor MicroSteps::run(const data::Batch& batch, const at::Tensor& scale) {
  accumulates_ = true;
  if (options_.sums) options_.sums->make_way();
  if (may_be_recorded(batch) && !reduction_tried_) record_adding(batch, scale);
  replayed_ = adding_.graph && shape_of(batch) == shape_;
  at::Tensor loss;
  if (replayed_) {
    fill_inputs(batch, scale);
    launch(adding_);
    loss = adding_.loss;
  } else {
    loss = forward_backward(batch, scale);
  }
  if (options_.sums) options_.sums->added(model_.head_owner(), replayed_ ? adding_.head_additions : model_.head_additions());
  return loss;
}

at::Tensor MicroSteps::run_and_reduce(const comm::Group& ranks, const data::Batch& batch, const at::Tensor& scale) {
  if (options_.sums) {  // no bucket is whole before its sums are: the reduction comes after backward, not behind it
    const at::Tensor loss = run(batch, scale);
    options_.sums->settle();
    gradients_->start_all(ranks);
    return loss;
  }
  if (may_be_recorded(batch) && ranks.recordable() && !reduction_tried_) record_reduction(ranks, batch, scale);
  gradients_->arm(ranks);
  replayed_ = reducing_.graph && shape_of(batch) == shape_;
  if (!replayed_) return forward_backward(batch, scale);
  fill_inputs(batch, scale);
  gradients_->replay(ranks, [this] { launch(reducing_); });
  return reducing_.loss;
}

// Counts; the same on every rank, whatever became of earlier recordings.
bool MicroSteps::may_be_recorded(const data::Batch& batch) {
  if (!wanted_ || batch.starts.defined()) return false;
  if (const auto shape = shape_of(batch); shape != shape_) {
    if (of_this_shape_ >= options_.warm_up) return false;  // one shape is recorded: another one now and then is not worth its memory
    shape_ = shape;
    of_this_shape_ = 0;
  }
  if (of_this_shape_ >= options_.warm_up) return true;
  ++of_this_shape_;
  return false;
}

// finish: what the recorded micro-step does at its end.
void MicroSteps::record(Recording& recording, const data::Batch& batch, const at::Tensor& scale, const std::function<void()>& finish) {
  if (!inputs_.tokens.defined()) {
    inputs_ = {.tokens = room_for(batch.tokens), .targets = room_for(batch.targets), .starts = {}, .keys = room_for(batch.keys)};
    scale_ = scale;
  }
  // What was allocated kernel by kernel goes first: memory need not hold both.
  model_.release_buffers();
  empty_cache(batch.tokens.device());
  graph_in_hand_ = true;
  try {
    recording.graph = options_.recorder->record([this, &recording, finish] {
      model_.release_buffers();  // what that makes anew is to belong to the graph as well
      recording.loss = forward_backward(inputs_, scale_);
      recording.head_additions = model_.head_additions();
      finish();
    });
  } catch (const c10::OutOfMemoryError&) {
    give_up("its memory does not fit beside what is there");
  } catch (const std::exception& error) {
    give_up(error.what());
  }
  graph_in_hand_ = false;
}

void MicroSteps::record_adding(const data::Batch& batch, const at::Tensor& scale) {
  if (options_.recorder && !adding_.graph) record(adding_, batch, scale, [] {});
}

// Whatever may fail on one rank comes before all agree. Later it would take this rank's reduction along, and leave the others to launch
// theirs alone.
void MicroSteps::record_reduction(const comm::Group& ranks, const data::Batch& batch, const at::Tensor& scale) {
  reduction_tried_ = true;
  if (accumulates_) record_adding(batch, scale);
  if (options_.recorder) {
    const comm::Group::Recording nothing_runs_yet(ranks);
    gradients_->arm(ranks);
    record(reducing_, batch, scale, [this, &ranks] { gradients_->finish(ranks); });
  }
  const bool mine = reducing_.graph != nullptr;
  if (!ranks.all_agree(mine, kAgreement) && mine) give_up("another rank could not record it");
}

void MicroSteps::fill_inputs(const data::Batch& batch, const at::Tensor& scale) {
  base::check(scale.is_same(scale_), "the loss's scale stays where it was recorded");
  inputs_.tokens.copy_(batch.tokens, /*non_blocking=*/true);
  inputs_.targets.copy_(batch.targets, /*non_blocking=*/true);
  if (inputs_.keys.defined()) inputs_.keys.copy_(batch.keys, /*non_blocking=*/true);
}

void MicroSteps::launch(const Recording& recording) {
  graph_in_hand_ = true;
  recording.graph->launch();
  graph_in_hand_ = false;
  if (options_.on_backward) options_.on_backward();
}

// Nothing was run and nothing is lost: from here on kernel by kernel.
void MicroSteps::give_up(const std::string& why) {
  base::log_info("micro-steps run kernel by kernel, not as a CUDA graph: {}", why.substr(0, why.find('\n')));
  options_.recorder.reset();
  drop_recordings();
}

void MicroSteps::make_room(const comm::Group& ranks, std::int64_t bytes) {
  if (!wanted_) return;
  const auto fits = [&] { return free_memory_bytes(ranks.device()) >= bytes; };
  bool enough = fits();
  if (!enough && inputs_.tokens.defined()) {  // what the last evaluation left does not count as free, but is
    model_.release_buffers();
    empty_cache(ranks.device());
    enough = fits();
  }
  if (ranks.all_agree(enough, kAgreement)) return;
  reduction_tried_ = false;
  if (inputs_.tokens.defined()) drop_recordings();
}

void MicroSteps::drop_recordings() {
  const at::Device device = inputs_.tokens.device();
  adding_ = {};
  reducing_ = {};
  inputs_ = {};
  model_.release_buffers();
  empty_cache(device);
}

}  // namespace lockstep::train
