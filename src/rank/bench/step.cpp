// A training step of a run, timed: train_step() over random weights, and over made-up batches where the settings name no data.
#include <algorithm>

#include "config/config.h"
#include "rank/bench/bench.h"
#include "rank/kernels/plugin.h"
#include "rank/model/model.h"
#include "rank/train/memory/device_memory.h"
#include "rank/train/watch/peak_flops.h"
#include "rank/train/watch/profile.h"
#include "rank/train/watch/timeline.h"
#include "rank/train/run.h"
#include "rank/train/train_step.h"

namespace lockstep::bench {
namespace {

constexpr double learning_rate = 1e-5;  // small: weights stay random, whatever the number of steps
constexpr int different_batches = 4;

// A few made-up batches, on the device already, in turn.
class MadeUp final : public train::BatchSource {
 public:
  explicit MadeUp(const train::Run& run) : accumulation_(run.batch.gradient_accumulation) {
    for (int i = 0; i < different_batches; ++i)
      batches_.push_back(run.task->make_up(run.batch.batch_size, run.world->device(), /*trains=*/true));
  }
  std::vector<data::Batch> next(const comm::Group&) override {
    std::vector<data::Batch> batches;
    for (std::int64_t i = 0; i < accumulation_; ++i) batches.push_back(batches_[next_++ % batches_.size()]);
    return batches;
  }
  data::Position position() const override { return {}; }

 private:
  std::int64_t accumulation_;
  std::vector<data::Batch> batches_;
  std::size_t next_ = 0;
};

// Passes batches on and counts what they train.
class Counted final : public train::BatchSource {
 public:
  explicit Counted(std::unique_ptr<train::BatchSource> source) : source_(std::move(source)) {}
  std::vector<data::Batch> next(const comm::Group& group) override {
    std::vector<data::Batch> batches = source_->next(group);
    for (const data::Batch& batch : batches) trained += batch.trained;
    return batches;
  }
  data::Position position() const override { return source_->position(); }
  std::int64_t trained = 0;

 private:
  std::unique_ptr<train::BatchSource> source_;
};

bool has_data(const config::RunConfig& config) { return !config.data.path.empty(); }

// A run of these settings that starts from random weights, moves them little and writes nothing.
config::RunConfig settings_of(const StepRequest& request) {
  config::RunConfig config = request.config;
  if (config.data.tokenizer.empty()) config.data.tokenizer = config.model.path;
  config.model.path.clear();
  config.lora.adapters.clear();
  config.trainer.learning_rate = learning_rate;
  config.trainer.lr_schedule = config::LrSchedule::constant;
  config.trainer.warmup_steps = 0;
  config.trainer.warmup_ratio = 0;
  config.trainer.max_steps = std::int64_t{1} << 40;
  config.monitor.profile_steps = 0;
  if (has_data(config)) return config;
  config.data.kind = config::DataKind::random;
  config.data.packing = false;
  config.data.validation_fraction = 0;
  config.data.random_tokens = config.data.seq_len + 1;
  return config;
}

class Bench {
 public:
  explicit Bench(const StepRequest& request) {
    train::RunRequest wish{.config = settings_of(request), .device = request.device, .place = request.place, .page = request.page};
    if (!request.timeline.empty()) wish.timeline = timeline_ = std::make_shared<train::Timeline>(request.device);
    if (request.link) {
      wish.links = request.link->links;
      wish.links->holder = make_holder(request.link->blocks, timeline_);
      wish.place.world_size = wish.place.local_world_size = request.link->ranks;
    }
    if (!has_data(wish.config)) wish.batches = [](const train::Run& run) { return std::make_unique<MadeUp>(run); };
    run_ = train::build_run(wish);
    auto counted = std::make_unique<Counted>(std::move(run_->batches));
    source_ = counted.get();
    run_->batches = std::move(counted);
    kept_ = source_->next(run_->mesh->data());
  }

  const train::Run& run() const { return *run_; }
  void step() { train::train_step(*run_); }
  // By the graph that steps have recorded: where a step is one micro-batch, that is the one that reduces, here over one rank.
  void micro_batch() {
    const bool last = kept_.size() == 1;
    run_->micro_steps->forward(kept_[next_++ % kept_.size()], run_->optimizer->scale(), {.last = last});
    run_->micro_steps->backward();
    if (last) run_->gradients->finish(run_->mesh->loss());
  }
  void update() {
    if (run_->gradient_sums) run_->gradient_sums->settle();
    run_->optimizer->finish_gradients(run_->optimizer->sum_of_squares(), run_->totals->of(train::sum::trained),
                                      run_->totals->of(train::sum::loss));
    run_->optimizer->step(learning_rate);
  }
  std::int64_t trained() const { return source_->trained; }
  std::vector<train::Timeline::Span> timeline_of_a_step() {
    timeline_->take();  // whatever was before
    step();
    return timeline_->take();
  }

 private:
  std::shared_ptr<train::Timeline> timeline_;
  std::unique_ptr<train::Run> run_;
  Counted* source_ = nullptr;
  std::vector<data::Batch> kept_;
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

// A wait that is none takes two marks.
constexpr double exposed_s = 20e-6;

// How long a wait was for an operation: until the last of its kind that ended meanwhile. Where none did the operation had ended before, and
// the time went to kernels that had the device.
double waited_for_link(const train::Timeline::Span& wait, const std::vector<train::Timeline::Span>& spans) {
  std::int64_t end_ns = wait.begin_ns;
  for (const train::Timeline::Span& span : spans)
    if (span.lane == wait.name && span.end_ns <= wait.end_ns) end_ns = std::max(end_ns, span.end_ns);
  return static_cast<double>(end_ns - wait.begin_ns) * 1e-9;
}

StepTimeline write_timeline(const std::filesystem::path& path, const std::vector<train::Timeline::Span>& spans) {
  StepTimeline timeline{.trace = path};
  const auto of = [&](const std::string& name) -> StepTimeline::Kind& {
    const auto found = std::find_if(timeline.kinds.begin(), timeline.kinds.end(), [&](const auto& kind) { return kind.name == name; });
    return found != timeline.kinds.end() ? *found : timeline.kinds.emplace_back(StepTimeline::Kind{.name = name});
  };
  for (const train::Timeline::Span& span : spans) {
    if (span.lane == "waits") {
      StepTimeline::Kind& kind = of(span.name);
      kind.waits += 1;
      const double seconds = waited_for_link(span, spans);
      if (seconds < exposed_s) continue;
      kind.exposed += 1;
      kind.exposed_seconds += seconds;
    } else if (span.lane == span.name) {
      StepTimeline::Kind& kind = of(span.name);
      kind.operations += 1;
      kind.seconds += span.seconds();
    }
  }
  base::write_text_atomically(base::real_files(), path, train::to_trace(spans));
  return timeline;
}

void describe(const train::Run& run, StepResult& result) {
  result.parameters = run.replica.parameters();
  result.trained_parameters = run.replica.trained_parameters();
  result.seq_len = run.task->training()->sample_size();
  result.batch_size = run.batch.batch_size;
  result.accumulation = run.batch.gradient_accumulation;
  result.activations = run.recompute;
  result.gradients = run.gradient_form;
  if (has_data(run.config)) result.data = run.task->description();
  result.flops_per_token = run.task->flops();
}

void measure_training(const StepRequest& request, StepResult& result) {
  Bench bench(request);
  describe(bench.run(), result);
  if (request.device.is_cuda()) kernels::cuda_plugin().reset_peak_memory(request.device.index());
  for (int i = 0; i < request.warm_up; ++i) bench.step();
  const std::int64_t before = bench.trained();
  result.step_seconds = time_calls(request.device, 0, request.steps, [&] { bench.step(); });
  result.tokens_per_step = static_cast<double>(bench.trained() - before) / request.steps;
  result.step = spread_of(result.step_seconds);
  result.peak_memory_bytes = train::peak_memory_bytes(request.device);
  result.driver_memory_bytes = train::driver_memory_bytes(request.device);
  result.host_peak_memory_bytes = train::peak_host_memory_bytes();
  result.cuda_graph = bench.run().micro_steps->replayed();
  if (!request.timeline.empty()) result.timeline = write_timeline(request.timeline, bench.timeline_of_a_step());
  const int rounds = std::max(3, request.steps / 2);
  result.micro_batch = spread_of(time_calls(request.device, 1, rounds, [&] { bench.micro_batch(); }));
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
  StepResult result{.model = config.model.name,
                    .device = train::describe_device(request.device),
                    .dtype = fmt::format("{}{}", config::name_of(config.model.dtype), config.trainer.fp8 ? " with fp8 matmuls" : ""),
                    .optimizer = describe_optimizer(config.trainer),
                    .warm_up = request.warm_up};
  result.peak_flops = train::peak_flops(result.device, config.model.dtype);
  result.fp8 = config.trainer.fp8;
  if (request.link) {
    result.link = request.link->describe();
    result.link_name = request.link->name;
    result.baseline = request.baseline;
    result.planned = request.planned;
    result.ranks = request.link->ranks;
  }
  measure_training(request, result);
  result.ceilings = measure_ceilings(request.device, model::scalar_type(config.model.dtype));  // when the model has left the memory
  return result;
}

}  // namespace lockstep::bench
