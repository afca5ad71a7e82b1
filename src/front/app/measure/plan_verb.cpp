// `lockstep plan`: what memory a run takes on each rank, and what more GPUs would bring, predicted from one GPU's measured step.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/file/refusal.h"
#include "base/files.h"
#include "base/text.h"
#include "config/config.h"
#include "front/app/flags.h"
#include "front/app/measure/model_file.h"
#include "front/app/verbs.h"
#include "front/plan/memory.h"
#include "front/plan/predict.h"
#include "layout/decoder.h"
#include "layout/tables.h"

namespace lockstep::app {
namespace {

struct PlanWish {
  std::string model, link = "nvlink", from, memory, device = "gpu";
  std::vector<std::string> settings;  // section.key=value
  std::optional<int> gpus;
  int machine = 8;
  std::optional<double> step_seconds, bandwidth, latency, bucket_mb;
  std::optional<std::int64_t> accumulation;
  bool json = false;
};

void describe(CLI::App& app, PlanWish& wish) {
  app.add_option("-f,--model", wish.model,
                 "a run's file, or the name of one in models/: memory by part is planned for it; its gradients are what GPUs exchange");
  app.add_option("settings", wish.settings, "any setting of the run, as section.key=value");
  app.add_option("--memory", wish.memory, "what a GPU has, such as 24GiB: recompute = auto fills it; all that is asked for if left out");
  app.add_option("--device", wish.device, "gpu or cpu")->capture_default_str()->check(CLI::IsMember({"gpu", "cpu"}));
  app.add_option("--step-seconds", wish.step_seconds, "one GPU's measured step")->check(CLI::PositiveNumber);
  app.add_option("--from", wish.from, "a one-rank run's summary.json, or what `lockstep bench step --json` printed");
  app.add_option("--gpus", wish.gpus, "ranks that memory is planned for, and the most to predict for; as the settings say, or 8")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--link", wish.link, "nvlink, pcie4, ib400 or ethernet-100; nvlink+ib400: within a machine and between machines")
      ->capture_default_str();
  app.add_option("--machine", wish.machine, "GPUs of a machine")->capture_default_str()->check(CLI::Range(1, 1 << 12));
  app.add_option("--bandwidth", wish.bandwidth, "GB/s of the link one way, such as the bus bandwidth that `lockstep bench comm` shows")
      ->check(CLI::PositiveNumber);
  app.add_option("--latency", wish.latency, "microseconds a message costs beside its bytes")->check(CLI::NonNegativeNumber);
  app.add_option("--bucket-mb", wish.bucket_mb, "MiB reduced at once; parallel.bucket_cap_mb if left out")->check(CLI::PositiveNumber);
  app.add_option("--accumulation", wish.accumulation, "micro-batches per step; the measured run's if left out")->check(CLI::PositiveNumber);
  app.add_flag("--json", wish.json, "one line of JSON");
}

std::int64_t bytes_of(std::string_view dtype) { return dtype == config::name_of(config::DType::f32) ? 4 : 2; }

std::optional<config::RunConfig> config_of(const PlanWish& wish) {
  if (wish.model.empty()) {
    if (!wish.settings.empty())
      throw base::usage_error("plan", "{}: settings change a model's file. Give one: -f FILE.", wish.settings.front());
    return std::nullopt;
  }
  config::Request request{.file = find_model(wish.model, "plan"), .environment = config::process_environment(), .assignments = {}};
  for (const std::string& setting : wish.settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos) throw base::usage_error("plan", "{} is no setting. Write section.key=value.", setting);
    request.assignments.push_back({setting.substr(0, equals), setting.substr(equals + 1), setting});
  }
  return config::load(request).values;
}

std::optional<plan::MeasuredRun> measured_run(const PlanWish& wish, const std::optional<config::RunConfig>& config) {
  if (wish.from.empty()) return std::nullopt;
  std::error_code error;
  base::refuse_if_hidden(wish.from);
  if (!std::filesystem::is_regular_file(wish.from, error)) throw base::usage_error("plan", "--from {}: there is no such file.", wish.from);
  plan::MeasuredRun run = plan::read_measured(base::read_text(wish.from), wish.from);
  if (!config) return run;
  const auto parameters = static_cast<double>(layout::count_parameters(config->model)), measured = static_cast<double>(run.parameters);
  constexpr double of_adapters = 0.1;  // that a run of the same model may have beside it
  if (std::abs(measured - parameters) > of_adapters * parameters)
    throw base::usage_error("plan", "--from {} is a step of {} parameters ({}), {} has {}. Measure a step of that model.", wish.from,
                            base::human_count(measured), run.what, wish.model, base::human_count(parameters));
  return run;
}

// A step is planned as it was measured, or as the flag says: memory and time of the same.
void take_accumulation(const PlanWish& wish, const std::optional<plan::MeasuredRun>& run, config::RunConfig& config) {
  if (wish.accumulation)
    config.trainer.gradient_accumulation = *wish.accumulation;
  else if (run && config.trainer.global_batch_size == 0)
    config.trainer.gradient_accumulation = run->accumulation;
}

// Nothing where no step was measured.
std::optional<plan::Measured> measured_of(const PlanWish& wish, const std::optional<config::RunConfig>& config,
                                          const std::optional<plan::MeasuredRun>& run) {
  plan::Measured measured = config ? plan::measured_of(*config) : plan::Measured{};
  if (config) measured.accumulation = config::plan_batch(*config, *wish.gpus).gradient_accumulation;
  if (run) {
    measured.step_seconds = run->step_seconds;
    measured.update_seconds = run->update_seconds;
    if (!config) measured.gradient_bytes = run->parameters * bytes_of(run->dtype);
    measured.accumulation = run->accumulation;
  }
  if (wish.step_seconds) measured.step_seconds = *wish.step_seconds;
  if (wish.accumulation) measured.accumulation = *wish.accumulation;
  if (wish.bucket_mb) measured.bucket_bytes = static_cast<std::int64_t>(*wish.bucket_mb * (1 << 20));
  if (measured.step_seconds <= 0 && config) return std::nullopt;
  if (measured.step_seconds <= 0) {
    throw base::usage_error(
        "plan",
        "a plan of memory needs a model: -f FILE. A plan of time starts from one GPU's measured step: --step-seconds S, "
        "or --from FILE with a run's summary.json.");
  }
  if (measured.gradient_bytes <= 0)
    throw base::usage_error("plan", "which model? Give -f FILE, or --from FILE, which knows its parameters.");
  return measured;
}

// Sizes come from the plan's own flags: --gpus says how many ranks there are.
plan::MemoryPlan memory_of(const PlanWish& wish, const config::RunConfig& config) {
  layout::MemoryWish asked{.ranks = *wish.gpus, .on_gpu = wish.device == "gpu"};
  if (!wish.memory.empty()) asked.device_bytes = plan::parse_memory(wish.memory);
  plan::MemoryPlan plan = plan::plan_memory(config, asked);
  plan.command = {"lockstep", "train", "-f", wish.model};
  plan.settings = wish.settings;
  if (wish.accumulation) plan.settings.push_back(fmt::format("trainer.gradient_accumulation={}", *wish.accumulation));
  return plan;
}

plan::Links links_of(const PlanWish& wish) {
  plan::Links links = plan::links_named(wish.link, wish.machine);
  for (plan::Link* link : {&links.within, &links.between}) {
    if (wish.bandwidth || wish.latency) link->basis = "as given; the rest is that of " + link->name;
    if (wish.bandwidth) link->bytes_per_second = *wish.bandwidth * 1e9;
    if (wish.latency) link->latency_s = *wish.latency * 1e-6;
  }
  return links;
}

// Two objects as one.
std::string joined(const std::string& time, const std::string& memory) {
  if (memory.empty()) return time;
  return time.empty() ? fmt::format("{{\"memory\":{}}}", memory)
                      : fmt::format("{},\"memory\":{}}}", time.substr(0, time.size() - 1), memory);
}

}  // namespace

int run_plan_verb(std::span<const std::string> args) {
  PlanWish wish;
  CLI::App app{
      "Plans the memory of each rank by part, from the settings alone; and, from one GPU's measured step, predicts step time, speed-up and "
      "efficiency on more GPUs.",
      "lockstep plan"};
  describe(app, wish);
  if (!read_flags(app, args, "plan")) return 0;

  const plan::Links links = links_of(wish);
  std::optional<config::RunConfig> config = config_of(wish);
  const std::optional<plan::MeasuredRun> run = measured_run(wish, config);
  if (config) take_accumulation(wish, run, *config);
  if (!wish.gpus) wish.gpus = config && config->parallel.ranks > 0 ? static_cast<int>(config->parallel.ranks * config->parallel.nnodes) : 8;
  const std::optional<plan::Measured> measured = measured_of(wish, config, run);
  std::string time, memory;
  if (config) {
    const plan::MemoryPlan plan = memory_of(wish, *config);
    memory = wish.json ? plan::to_json(plan) : plan::to_text(plan);
  }
  if (measured) {
    std::vector<plan::Prediction> predictions;
    for (const int gpus : plan::gpu_counts(*wish.gpus, config ? static_cast<int>(config->parallel.replicate) : 1))
      predictions.push_back(config ? plan::predict_for(*config, *measured, links, gpus) : plan::predict(*measured, links.of(gpus), gpus));
    time = wish.json ? plan::to_json(*measured, links, predictions) : plan::to_text(*measured, links, predictions);
  }
  const std::string between = !time.empty() && !memory.empty() ? "\n" : "";
  std::fputs((wish.json ? joined(time, memory) + "\n" : memory + between + time).c_str(), stdout);
  return 0;
}

}  // namespace lockstep::app
