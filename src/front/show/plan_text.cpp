// The plan as a few aligned lines.
#include "front/show/plan_text.h"

#include <fmt/format.h>

#include <map>

#include "base/text.h"
#include "front/launch/watch.h"
#include "front/plan/memory.h"

namespace lockstep::show {
namespace {

using job::RunPlan;
using job::steps_of;

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

// What is fine-tuned, or that there is nothing to start from.
std::string origin_of(const config::RunConfig& config) {
  const std::string weights = config.model.path.empty() ? "random weights" : config.model.path;
  return (config.lora.enabled ? "adapters beside " : "") + weights;
}

// "full: weights, gradients and states over 4 ranks, in each of 2 replicas"
std::string shards_line(const RunPlan& plan, const config::RunConfig& config) {
  const layout::MeshShape mesh = layout::mesh_of(config, plan.world_size);
  const int sharers = mesh.along(layout::Axis::shard), replicas = mesh.along(layout::Axis::replicate);
  std::vector<std::string> parts = job::cut_parts(config);
  std::string text = fmt::format("{}: ", config::name_of(config.parallel.shard));
  if (parts.empty() || sharers == 1) {
    text += "nothing is cut";
  } else {
    const std::string last = parts.back();
    parts.pop_back();
    text += fmt::format("{}{}{} over {} ranks", base::join(parts, ", "), parts.empty() ? "" : " and ", last, sharers);
    if (replicas > 1) text += fmt::format(", in each of {} replicas", replicas);
  }
  return text + (config.lora.enabled ? "; adapters are whole, their gradients summed as replicas' are" : "");
}

}  // namespace

std::string to_text(const RunPlan& plan, const config::RunConfig& config) {
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value) { text += fmt::format("  {:<15}{}\n", name, value); };
  text += fmt::format("lockstep: {} on {} rank{}\n", config.model.name, plan.world_size, plan.world_size == 1 ? "" : "s");
  line("devices", devices_line(plan) + fmt::format(", {} thread{} each", plan.threads, plan.threads == 1 ? "" : "s"));
  if (!plan.launcher.empty()) line("started by", plan.launcher);
  line("backend", std::string(config::name_of(plan.backend)));
  if (config.parallel.shard != config::ShardKind::none) line("shards", shards_line(plan, config));
  line("model", fmt::format("{} parameters, {}, {}", base::human_count(static_cast<double>(plan.parameters)),
                            config::name_of(config.model.dtype), origin_of(config)));
  if (!plan.memory.parts.empty()) line("memory", plan::in_one_line(plan.memory));
  line("data", job::describe_data(config.data));
  line("batch", fmt::format("{} samples per step = batch {} x accumulation {} x {} rank{}", plan.batch.global_batch_size,
                            plan.batch.batch_size, plan.batch.gradient_accumulation, plan.world_size, plan.world_size == 1 ? "" : "s"));
  line("tokens", fmt::format("{} per step ({} per sample)", job::tokens_per_step(plan, config), config.data.seq_len));
  line("learning rate", learning_rate_line(plan, config.trainer));
  line("steps", steps_line(plan, config.trainer));
  line("run folder", plan.folder);
  for (const auto& note : plan.notes) text += "  note: " + note + "\n";
  return text;
}

std::string in_one_line(const layout::Traffic& traffic) {
  const auto moved = [](std::int64_t times, std::int64_t bytes) {
    return fmt::format("{} ({})", times, base::human_bytes(static_cast<std::uint64_t>(bytes)));
  };
  const std::string between =
      traffic.exchanges == 0 ? "" : fmt::format(", {} sums between replicas", moved(traffic.exchanges, traffic.exchanged_bytes));
  if (traffic.reductions == 0)  // frozen weights
    return fmt::format("{} gathers, as each rank receives them, and sums of the adapters' gradients",
                       moved(traffic.gathers, traffic.gathered_bytes));
  return fmt::format("{} gathers, {} reductions{}, as each rank receives them", moved(traffic.gathers, traffic.gathered_bytes),
                     moved(traffic.reductions, traffic.reduced_bytes), between);
}

std::string to_text(const layout::Tables& tables, double seconds) {
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value) { text += fmt::format("  {:<15}{}\n", name, value); };
  line("mesh", layout::to_text(tables.mesh));
  line("rank 0 meets", layout::groups_of(tables, 0));
  line("a step", in_one_line(tables.traffic));
  line("tables", fmt::format("{} units, {} moves, of {} rank{}: looked through in {:.1f} s, nothing is wrong", tables.units.size(),
                             tables.moves.size(), tables.mesh.ranks(), tables.mesh.ranks() == 1 ? "" : "s", seconds));
  return text;
}

}  // namespace lockstep::show
