// A micro-step: recorded where the policy says so, replayed where there is a graph, kernel by kernel otherwise.
#include "rank/train/step/micro_steps.h"

#include "layout/flops.h"
#include "rank/train/memory/device_memory.h"

namespace lockstep::train {
namespace {

// What the host reads of a batch (where packed records start) decides what it launches: such batches are never recorded.
std::vector<std::int64_t> shape_of(const data::Batch& batch) {
  std::vector<std::int64_t> shape;
  for (const at::Tensor& field : batch.on_host) {
    if (field.defined()) return {};
  }
  for (const at::Tensor& field : batch.on_device) {
    shape.push_back(field.defined() ? field.dim() : -1);
    if (field.defined()) shape.insert(shape.end(), field.sizes().begin(), field.sizes().end());
  }
  return shape;
}

// Whether a recorded collective is launched must be the same on all ranks, so one that cannot speaks for all.
constexpr std::string_view kAgreement = "whether micro-steps are recorded";

}  // namespace

std::unique_ptr<kernels::GraphRecorder> graph_recorder_for(const config::RunConfig& config, at::Device device) {
  if (!config.trainer.cuda_graphs) return nullptr;
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

MicroSteps::MicroSteps(const task::Task& task, model::Stage& model, parallel::Exchange& gradients, const comm::Group& ranks,
                       Options options)
    : task_(task),
      model_(model),
      gradients_(gradients),
      ranks_(ranks),
      progress_(std::move(options.progress)),
      store_(options.store),
      sums_(options.sums),
      time_(std::move(options.time)),
      same_shapes_(options.same_shapes),
      records_host_(options.records_host),
      policy_({.wanted = options.recorder != nullptr, .warm_up = options.warm_up, .most_kept = options.most_shapes}),
      graphs_(std::move(options.recorder), model, options.largest_batch) {
  if (options.mark_blocks) model_.mark_blocks(progress_);
}

MicroSteps::~MicroSteps() { model_.mark_blocks(nullptr); }

// The micro-step itself, kernel by kernel or being recorded. Nothing else arms the reduction.
void MicroSteps::begin(GraphAction action, const data::Batch& batch, const model::Micro& micro) {
  if (action == GraphAction::reduces) gradients_.arm(ranks_);
  task_.forward(model_, key_.place.flight, batch, micro);
}

at::Tensor MicroSteps::end(const at::Tensor& scale) {
  const at::Tensor loss = model_.backward(scale, key_.place.flight);
  if (progress_) progress_->mark();
  return loss;
}

void MicroSteps::forward(const data::Batch& batch, const at::Tensor& scale, const model::Micro& micro) {
  if (sums_) sums_->make_way();
  // With sums behind gradients no bucket is whole before they are: the reduction comes after backward, not behind it.
  key_ = {micro.last && !sums_ ? GraphAction::reduces : GraphAction::adds, {.shape = shape_of(batch)}, store_ != nullptr && micro.first};
  scale_ = scale;
  micro_ = micro;
  const bool recordable = same_shapes_ && (ranks_.recordable() || records_host_);
  const GraphPolicy::Answer answer = policy_.before(key_, recordable);
  if (answer.forget) graphs_.drop(*answer.forget);
  if (store_ != nullptr) {
    if (answer.may_replay && recordable && graphs_.may_record() && !graphs_.has(key_)) record_together(batch, scale);
  } else {
    if (answer.record_adding) record(GraphAction::adds, batch, scale, {.index = micro.index, .first = micro.first, .last = false});
    if (answer.record_reducing) record_reduction(batch, scale, micro);
  }
  replayed_ = answer.may_replay && graphs_.has(key_) && (store_ == nullptr || store_->replays(as_recorded()));
  if (replayed_)
    graphs_.fill(key_.place, batch, scale);
  else
    begin(key_.action, batch, micro);
}

at::Tensor MicroSteps::backward() {
  at::Tensor loss;
  const auto launch = [&] { loss = graphs_.launch(key_); };
  const auto exchange = [&] { key_.action == GraphAction::reduces ? gradients_.replay(ranks_, launch) : launch(); };
  if (!replayed_)
    loss = end(scale_);
  else if (store_ != nullptr)
    store_->replay(as_recorded(), exchange);
  else
    exchange();
  if (!sums_) return loss;
  sums_->added(model_.often_added(), replayed_ ? graphs_.additions(key_) : model_.additions());
  if (micro_.last) {
    sums_->settle();
    gradients_.start_all(ranks_);
  }
  return loss;
}

void MicroSteps::count_recorded(journal::Part part) const {
  if (time_) time_->record(part);
}

void MicroSteps::record(GraphAction action, const data::Batch& batch, const at::Tensor& scale, const model::Micro& micro) {
  graphs_.record({action, key_.place, key_.first}, batch, scale,
                 [this, action, micro](const data::Batch& inputs, const at::Tensor& of_loss) {
                   count_recorded(journal::Part::forward);
                   begin(action, inputs, micro);
                   count_recorded(journal::Part::backward);
                   const at::Tensor loss = end(of_loss);
                   if (action == GraphAction::reduces || store_ != nullptr) count_recorded(journal::Part::communication);
                   if (action == GraphAction::reduces) gradients_.finish(ranks_);
                   if (store_ != nullptr) store_->settle();
                   return loss;
                 });
  if (time_) time_->end_of_recording();
}

void MicroSteps::record_reduction(const data::Batch& batch, const at::Tensor& scale, const model::Micro& micro) {
  {
    const comm::Group::Recording nothing_runs_yet(ranks_);
    record(GraphAction::reduces, batch, scale, micro);
  }
  const bool mine = graphs_.has(key_);
  if (!ranks_.all_agree(mine, kAgreement) && mine) graphs_.give_up("another rank could not record it");
}

// Where ranks open units together every micro-step moves something between them: all ranks have its recording, or none has any.
void MicroSteps::record_together(const data::Batch& batch, const at::Tensor& scale) {
  store_->record(as_recorded(), [&] {
    const comm::Group::Recording nothing_runs_yet(ranks_);
    record(key_.action, batch, scale, as_recorded());
  });
  if (!ranks_.all_agree(graphs_.has(key_), kAgreement)) graphs_.give_up("a rank could not record it");
}

void MicroSteps::make_room(const comm::Group& everyone, std::int64_t bytes) {
  if (!policy_.wanted()) return;
  const auto fits = [&] { return free_memory_bytes(everyone.device()) >= bytes; };
  bool enough = fits();
  if (!enough && graphs_.hold_memory()) {  // what the last evaluation left does not count as free, but is
    model_.release_buffers();
    empty_cache(everyone.device());
    enough = fits();
  }
  if (everyone.all_agree(enough, kAgreement)) return;
  policy_.start_over();
  if (graphs_.hold_memory()) graphs_.drop();
}

}  // namespace lockstep::train
