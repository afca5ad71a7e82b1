// What follows from a plan, and the plan as one JSON object.
#include "front/job/plan.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "corpus/prepare/prepare.h"
#include "layout/spread/placement.h"
#include "layout/tables.h"

namespace lockstep::job {

std::int64_t tokens_per_step(const RunPlan& plan, const config::RunConfig& config) {
  return plan.batch.global_batch_size * config.data.seq_len;
}

std::string describe_data(const config::DataConfig& data) {
  switch (corpus::kind_of(data)) {
    case config::DataKind::stories: return fmt::format("{} built-in stories", data.stories);
    case config::DataKind::random: return fmt::format("{} random tokens", base::human_count(static_cast<double>(data.random_tokens)));
    default: return data.path + (data.packing ? ", packed" : "");
  }
}

std::optional<std::int64_t> steps_of(const RunPlan& plan, const config::TrainerConfig& trainer) {
  if (trainer.max_steps > 0) return trainer.max_steps;
  if (!plan.epoch_samples) return std::nullopt;
  const std::int64_t batch = plan.batch.global_batch_size, epoch = (*plan.epoch_samples + batch - 1) / batch;
  return static_cast<std::int64_t>(std::ceil(trainer.num_epochs * static_cast<double>(epoch)));
}

std::vector<std::string> cut_parts(const config::RunConfig& config) {
  const layout::Placement placement = layout::placement_of(config);
  const auto is_cut = [](layout::Spread spread) { return spread != layout::Spread::whole; };
  if (config.lora.enabled) return is_cut(placement.weights) ? std::vector<std::string>{"frozen weights"} : std::vector<std::string>{};
  std::vector<std::string> parts;
  for (const auto& [name, spread] :
       {std::pair("weights", placement.weights), {"gradients", placement.gradients}, {"states", placement.states}})
    if (is_cut(spread)) parts.emplace_back(name);
  return parts;
}

std::string to_json(const RunPlan& plan, const config::RunConfig& config) {
  nlohmann::ordered_json json;
  json["event"] = "plan";
  json["run"] = plan.folder;
  json["model"] = config.model.name;
  json["parameters"] = plan.parameters;
  for (const layout::PartBytes& part : plan.memory.parts) json["memory"][std::string(layout::name_of(part.part))] = part.bytes;
  json["dtype"] = config::name_of(config.model.dtype);
  json["data"] = describe_data(config.data);
  json["ranks"] = plan.world_size;
  if (config.parallel.shard != config::ShardKind::none) {
    const layout::MeshShape mesh = layout::mesh_of(config, plan.world_size);
    json["shards"] = {{"placement", config::name_of(config.parallel.shard)},
                      {"cut", cut_parts(config)},
                      {"ranks", mesh.along(layout::Axis::shard)},
                      {"replicas", mesh.along(layout::Axis::replicate)}};
  }
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

}  // namespace lockstep::job
