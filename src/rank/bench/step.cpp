// A training step without data or ranks: forward, backward, clip, update, on random weights and tokens.
#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>

#include "config/config.h"
#include "rank/bench/bench.h"
#include "rank/kernels/plugin.h"
#include "rank/model/model.h"
#include "layout/recompute.h"
#include "rank/optim/optim.h"
#include "rank/parallel/replicate.h"
#include "rank/train/device_memory.h"
#include "rank/train/gradients.h"
#include "rank/train/make_model.h"
#include "rank/train/micro_steps.h"
#include "rank/train/peak_flops.h"
#include "rank/train/profile.h"

namespace lockstep::bench {
namespace {

constexpr double learning_rate = 1e-5;  // small: weights stay random, whatever the number of steps
constexpr int different_batches = 4;

// Everything a step needs, made as a run makes it.
class Bench {
 public:
  explicit Bench(const StepRequest& request) : config_(request.config), device_(request.device) {
    const config::BatchPlan batch = config::plan_batch(config_, 1);
    accumulation_ = batch.gradient_accumulation;
    replica_ = train::make_units(config_, device_);
    model_ = train::make_decoder(config_, replica_);
    train::choose_precision(config_, *model_, device_);
    train::initialize_weights(config_, replica_);
    train::initialize_adapters(config_, replica_, *model_);
    const double tokens = static_cast<double>(batch.global_batch_size * config_.data.seq_len);
    optimizer_ = optim::make_optimizer(config_, *replica_.store, tokens);
    token_count_ = at::full({}, tokens, number());
    const train::MemoryQuestion question{config_, batch, config_.data.seq_len};
    const train::MemoryPlan plan = train::plan_memory(question, replica_, [](bool fits) { return fits; });
    sums_ = train::apply(plan, question, replica_, *model_);
    gradients_ = train::describe(plan, config_, sums_.get());
    activations_ = model::describe(plan.recompute);
    micro_steps_ = std::make_unique<train::MicroSteps>(
        *model_, nullptr,
        train::MicroSteps::Options{.recorder = train::graph_recorder_for(config_, device_, /*fixed_shapes=*/true),
                                   .progress = kernels::make_progress(device_),
                                   .mark_blocks = train::blocks_are_long(config_, batch.batch_size * config_.data.seq_len, device_),
                                   .sums = sums_.get()});
    for (int i = 0; i < different_batches; ++i) {
      const at::Tensor row = at::randint(config_.model.vocab_size, {batch.batch_size, config_.data.seq_len + 1}, at::kLong).to(device_);
      batches_.push_back(
          {.tokens = row.narrow(1, 0, config_.data.seq_len).contiguous(), .targets = row.narrow(1, 1, config_.data.seq_len).contiguous()});
    }
  }

  void micro_batch() { loss_ += micro_steps_->run(batches_[next_++ % batches_.size()], optimizer_->scale()); }
  void update() {
    if (sums_) sums_->settle();
    optimizer_->finish_gradients(optimizer_->sum_of_squares(), token_count_, loss_);
    optimizer_->step(learning_rate);
    loss_.zero_();
  }
  void step() {
    for (std::int64_t i = 0; i < accumulation_; ++i) micro_batch();
    update();
  }
  std::int64_t parameters() const { return replica_.parameters(); }
  std::int64_t trained_parameters() const { return replica_.trained_parameters(); }
  const std::string& activations() const { return activations_; }
  const std::string& gradients() const { return gradients_; }
  bool cuda_graph() const { return micro_steps_->replayed(); }

 private:
  at::TensorOptions number() const { return at::TensorOptions().device(device_).dtype(at::kDouble); }

  config::RunConfig config_;
  at::Device device_;
  std::int64_t accumulation_ = 1;
  parallel::Replica replica_;
  std::unique_ptr<model::Decoder> model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<parallel::GradientSums> sums_;
  std::unique_ptr<train::MicroSteps> micro_steps_;
  std::vector<data::Batch> batches_;
  at::Tensor token_count_;
  at::Tensor loss_ = at::zeros({}, number());
  std::string activations_, gradients_;
  std::size_t next_ = 0;
};

std::string describe_optimizer(const config::TrainerConfig& trainer) {
  const bool masters = trainer.optimizer_states == config::StateDType::f32;
  return fmt::format("{}, {}", config::name_of(trainer.optimizer),
                     masters ? "f32 masters and states" : "bf16 states, no masters, stochastic rounding");
}

StepProfile trace_steps(const StepRequest& request, Bench& bench) {
  train::Trace trace(request.device);
  const std::filesystem::path stem = request.profile_folder / "step";
  trace.start();
  for (int i = 0; i < request.profile_steps; ++i) bench.step();
  return {.steps = request.profile_steps, .trace = stem.string() + ".json", .table = trace.stop(stem, request.profile_steps)};
}

void measure_training(const StepRequest& request, StepResult& result) {
  Bench bench(request);
  result.parameters = bench.parameters();
  result.trained_parameters = bench.trained_parameters();
  result.activations = bench.activations();
  result.gradients = bench.gradients();
  if (request.device.is_cuda()) kernels::cuda_plugin().reset_peak_memory(request.device.index());
  result.step_seconds = time_calls(request.device, request.warm_up, request.steps, [&] { bench.step(); });
  result.step = spread_of(result.step_seconds);
  result.peak_memory_bytes = train::peak_memory_bytes(request.device);
  result.driver_memory_bytes = train::driver_memory_bytes(request.device);
  result.host_peak_memory_bytes = train::peak_host_memory_bytes();
  const int rounds = std::max(3, request.steps / 2);
  result.micro_batch = spread_of(time_calls(request.device, 1, rounds, [&] { bench.micro_batch(); }));
  result.cuda_graph = bench.cuda_graph();
  result.update = spread_of(time_calls(request.device, 1, rounds, [&] { bench.update(); }));
  if (request.profile_steps > 0) result.profile = trace_steps(request, bench);
}

}  // namespace

std::optional<double> StepResult::mfu() const {
  if (!peak_flops) return std::nullopt;
  return tokens_per_second() * train::ideal_seconds(flops_per_token, *peak_flops, fp8);
}

StepResult measure_step(const StepRequest& request) {
  const config::RunConfig& config = request.config;
  const config::BatchPlan batch = config::plan_batch(config, 1);
  StepResult result{.model = config.model.name,
                    .device = train::describe_device(request.device),
                    .dtype = fmt::format("{}{}", config::name_of(config.model.dtype), config.trainer.fp8 ? " with fp8 matmuls" : ""),
                    .optimizer = describe_optimizer(config.trainer),
                    .seq_len = config.data.seq_len,
                    .batch_size = batch.batch_size,
                    .accumulation = batch.gradient_accumulation,
                    .warm_up = request.warm_up};
  result.flops_per_token = layout::flops_per_token(config.model, config.lora, config.data.seq_len);
  result.peak_flops = train::peak_flops(result.device, config.model.dtype);
  result.fp8 = config.trainer.fp8;
  measure_training(request, result);
  result.ceilings = measure_ceilings(request.device, model::scalar_type(config.model.dtype));  // when the model has left the memory
  return result;
}

}  // namespace lockstep::bench
