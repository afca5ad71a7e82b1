// The plan as a few aligned lines, or as one JSON object.
#include "front/app/plan.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "front/launch/watch.h"
#include "records/prepare.h"

namespace lockstep::app {
namespace {

// "2 x CPU", "8 x NVIDIA H200 (GPUs 0-7)"
std::string devices_line(const RunPlan& plan) {
  std::map<std::string, std::vector<int>> by_model;
  for (const auto& device : plan.devices) by_model[device.model].push_back(device.gpu);
  std::vector<std::string> parts;
  for (const auto& [model, gpus] : by_model) {
    const std::string numbers = gpus.front() < 0 ? "" : fmt::format(" (GPU{} {})", gpus.size() > 1 ? "s" : "", launch::list_ranks(gpus));
    parts.push_back(fmt::format("{} x {}{}", gpus.size(), model, numbers));
  }
  return base::join(parts, ", ");
}

std::string warmup_words(const config::TrainerConfig& trainer, std::optional<std::int64_t> steps) {
  if (trainer.warmup_ratio > 0 && !steps) {
    return fmt::format(" after {:g}% of the steps as warm-up{}", 100 * trainer.warmup_ratio,
                       trainer.warmup_steps > 0 ? fmt::format(", {} at most", trainer.warmup_steps) : "");
  }
  const std::int64_t warmup = config::warmup_steps(trainer, steps.value_or(0));
  return warmup > 0 ? fmt::format(" after {} step{} of warm-up", warmup, warmup == 1 ? "" : "s") : "";
}

std::string steps_line(const RunPlan& plan, const config::TrainerConfig& trainer) {
  const std::string epochs = fmt::format("{:g} epoch{}", trainer.num_epochs, trainer.num_epochs == 1 ? "" : "s");
  const auto steps = steps_of(plan, trainer);
  if (!steps) return epochs + " of the data";
  if (trainer.max_steps > 0) return std::to_string(*steps);
  return fmt::format("{} = {} of {} samples", *steps, epochs, *plan.epoch_samples);
}

std::string learning_rate_line(const RunPlan& plan, const config::TrainerConfig& trainer) {
  const double factor = plan.batch.learning_rate / trainer.learning_rate;
  std::string text = fmt::format("{:.3g}", plan.batch.learning_rate);
  if (trainer.lr_scaling == config::LrScaling::none)
    text += plan.world_size > 1 ? " (trainer.lr_scaling none: as given, whatever the number of ranks)" : "";
  else
    text += fmt::format(" = {:.3g} x {:.3g} (trainer.lr_scaling {} with {} rank{})", trainer.learning_rate, factor,
                        config::name_of(trainer.lr_scaling), plan.world_size, plan.world_size == 1 ? "" : "s");
  text += fmt::format(", {}", config::name_of(trainer.lr_schedule));
  text += warmup_words(trainer, steps_of(plan, trainer));
  return text;
}

std::int64_t tokens_per_step(const RunPlan& plan, const config::RunConfig& config) {
  return plan.batch.global_batch_size * config.data.seq_len;
}

// "chat.jsonl, packed", "built-in stories"
std::string data_line(const config::DataConfig& data) {
  switch (records::kind_of(data)) {
    case config::DataKind::stories: return fmt::format("{} built-in stories", data.stories);
    case config::DataKind::random: return fmt::format("{} random tokens", base::human_count(static_cast<double>(data.random_tokens)));
    default: return data.path + (data.packing ? ", packed" : "");
  }
}

// What is fine-tuned, or that there is nothing to start from.
std::string origin_of(const config::RunConfig& config) {
  const std::string weights = config.model.path.empty() ? "random weights" : config.model.path;
  return (config.lora.enabled ? "adapters beside " : "") + weights;
}

}  // namespace

config::Backend expected_backend(config::Backend asked, int world_size, bool on_gpus) {
  if (world_size == 1) return config::Backend::single;
  if (asked != config::Backend::automatic) return asked;
  return on_gpus ? config::Backend::nccl : config::Backend::gloo;
}

std::optional<std::int64_t> steps_of(const RunPlan& plan, const config::TrainerConfig& trainer) {
  if (trainer.max_steps > 0) return trainer.max_steps;
  if (!plan.epoch_samples) return std::nullopt;
  const std::int64_t batch = plan.batch.global_batch_size, epoch = (*plan.epoch_samples + batch - 1) / batch;
  return static_cast<std::int64_t>(std::ceil(trainer.num_epochs * static_cast<double>(epoch)));
}

std::string to_text(const RunPlan& plan, const config::RunConfig& config) {
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value) { text += fmt::format("  {:<15}{}\n", name, value); };
  text += fmt::format("lockstep: {} on {} rank{}\n", config.model.name, plan.world_size, plan.world_size == 1 ? "" : "s");
  line("devices", devices_line(plan) + fmt::format(", {} thread{} each", plan.threads, plan.threads == 1 ? "" : "s"));
  if (!plan.launcher.empty()) line("started by", plan.launcher);
  line("backend", std::string(config::name_of(plan.backend)));
  line("model", fmt::format("{} parameters, {}, {}", base::human_count(static_cast<double>(plan.parameters)),
                            config::name_of(config.model.dtype), origin_of(config)));
  line("data", data_line(config.data));
  line("batch", fmt::format("{} samples a step = batch {} x accumulation {} x {} rank{}", plan.batch.global_batch_size,
                            plan.batch.batch_size, plan.batch.gradient_accumulation, plan.world_size, plan.world_size == 1 ? "" : "s"));
  line("tokens a step", fmt::format("{} ({} a sample)", tokens_per_step(plan, config), config.data.seq_len));
  line("learning rate", learning_rate_line(plan, config.trainer));
  line("steps", steps_line(plan, config.trainer));
  line("run folder", plan.folder);
  for (const auto& note : plan.notes) text += "  note: " + note + "\n";
  return text;
}

std::string to_json(const RunPlan& plan, const config::RunConfig& config) {
  nlohmann::ordered_json json;
  json["event"] = "plan";
  json["run"] = plan.folder;
  json["model"] = config.model.name;
  json["parameters"] = plan.parameters;
  json["dtype"] = config::name_of(config.model.dtype);
  json["data"] = data_line(config.data);
  json["ranks"] = plan.world_size;
  for (const auto& device : plan.devices) {
    json["devices"].push_back(device.gpu < 0 ? device.model : fmt::format("GPU {} {}", device.gpu, device.model));
  }
  json["threads"] = plan.threads;
  json["backend"] = config::name_of(plan.backend);
  json["batch_size"] = plan.batch.batch_size;
  json["gradient_accumulation"] = plan.batch.gradient_accumulation;
  json["global_batch_size"] = plan.batch.global_batch_size;
  json["tokens_per_step"] = tokens_per_step(plan, config);
  json["learning_rate"] = plan.batch.learning_rate;
  json["learning_rate_factor"] = plan.batch.learning_rate / config.trainer.learning_rate;
  json["max_steps"] = config.trainer.max_steps;
  json["num_epochs"] = config.trainer.num_epochs;
  if (const auto steps = steps_of(plan, config.trainer)) {
    json["steps"] = *steps;
    json["warmup_steps"] = config::warmup_steps(config.trainer, *steps);
  }
  json["notes"] = plan.notes;
  return json.dump();
}

}  // namespace lockstep::app
