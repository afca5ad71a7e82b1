// Lines for people, and one object for programs.
#include "front/plan/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "front/plan/advice.h"
#include "layout/decoder.h"
#include "layout/tables.h"

namespace lockstep::plan {
namespace {

using layout::Part;
using layout::RankMemory;

std::string human(std::int64_t bytes) { return base::human_bytes(static_cast<std::uint64_t>(bytes)); }

std::string_view form_of(const MemoryPlan& plan) {
  return plan.memory.step.gradients == layout::GradientForm::f32 ? "f32" : config::name_of(plan.config.model.dtype);
}

std::string remark(const MemoryPlan& plan, Part part) {
  switch (part) {
    case Part::weights:
    case Part::frozen:
    case Part::adapters: return std::string(config::name_of(plan.config.model.dtype));
    case Part::quantized: return plan.config.model.load_in_4bit ? "NF4" : "int8";
    case Part::masters: return "f32";
    case Part::gradients: return std::string(form_of(plan));
    case Part::gradient_sums: return "f32, flushed into now and then";
    case Part::states: return std::string(config::name_of(plan.config.trainer.optimizer));
    case Part::activations: {
      const std::string kept = layout::describe(plan.memory.step.recompute);
      const std::int64_t away = plan.memory.offloaded_bytes;
      return away > 0 ? fmt::format("{}; {} more in host memory", kept, human(away)) : kept;
    }
    case Part::dense_copy: return "of the quantized matrix in use";
    case Part::logits: return "one chunk";
    case Part::adapter_work: return "of one matrix at a time";
    case Part::fp8: return "of one product at a time";
    case Part::slots: return "where layers are whole while they are at work";
    case Part::communication: return "gradients on their way, when logits are gone";
    case Part::samples: return "keys and values of texts between steps";
    case Part::communicators: return "buffers of the library that moves bytes";
    case Part::reserve: return "the device's context, workspaces, the allocator's rounding";
  }
  return "";
}

RankMemory under(const MemoryPlan& plan, const PlacementChoice& placement, config::Recompute policy) {
  config::RunConfig config = plan.config;
  config.parallel.shard = placement.shard;
  config.parallel.replicate = placement.replicate;
  config.trainer.recompute = policy;
  return layout::rank_memory(config, plan.batch, plan.wish);
}

constexpr config::Recompute policies[] = {config::Recompute::none, config::Recompute::norms, config::Recompute::qkv,
                                          config::Recompute::blocks};

std::string verdict_line(const MemoryPlan& plan) {
  const std::int64_t has = *plan.wish.device_bytes, left = has - plan.memory.total();
  switch (verdict_of(plan.memory, has)) {
    case Verdict::fits: return fmt::format("  {:<18}{:>13}   of {}\n", "left", human(left), human(has));
    case Verdict::tight:
      return fmt::format("  {:<18}{:>13}   of {}: tight, and likely to fit; estimates are from above\n", "missing", human(-left),
                         human(has));
    case Verdict::too_large: return fmt::format("  {:<18}{:>13}   does not fit into {}\n", "missing", human(-left), human(has));
  }
  throw base::Bug("a verdict that has no words");
}

// In all, for every placement and every policy.
std::string placements_text(const MemoryPlan& plan) {
  std::string text;
  std::size_t width = 18;
  for (const PlacementChoice& placement : placements_for(plan.config, plan.wish.ranks))
    width = std::max(width, placement.name().size() + 8);
  const auto row = [&](std::string_view name, const auto& cell) {
    text += fmt::format("  {:<{}}", name, width);
    for (const config::Recompute policy : policies) text += fmt::format("{:>13}", cell(policy));
    text += "\n";
  };
  const PlacementChoice own{plan.config.parallel.shard, plan.config.parallel.replicate};
  bool too_large = false;
  row("recompute", [](config::Recompute policy) { return std::string(config::name_of(policy)); });
  row("activations", [&](config::Recompute policy) { return human(under(plan, own, policy).of(Part::activations)); });
  for (const PlacementChoice& placement : placements_for(plan.config, plan.wish.ranks)) {
    row(plan.wish.ranks == 1 ? "in all" : "shard " + placement.name(), [&](config::Recompute policy) {
      const RankMemory memory = under(plan, placement, policy);
      const bool over = plan.wish.device_bytes && verdict_of(memory, *plan.wish.device_bytes) == Verdict::too_large;
      too_large |= over;
      return over ? fmt::format("({})", human(memory.total())) : human(memory.total());
    });
  }
  return too_large ? text + fmt::format("  (in brackets: does not fit into {})\n", human(*plan.wish.device_bytes)) : text;
}

std::string advice_text(const MemoryPlan& plan) {
  const Advice advice = advise(plan);
  std::string text;
  if (advice.largest_batch)
    text += fmt::format("  largest batch: {} sample{} of {} tokens at once on each rank, with these settings\n", *advice.largest_batch,
                        *advice.largest_batch == 1 ? "" : "s", plan.config.data.seq_len);
  if (advice.changes.empty()) return text + "  nothing that is known here makes it fit.\n";
  for (const Change& change : advice.changes) {
    const std::string where = change.ranks == plan.wish.ranks ? "" : fmt::format(" on {} GPUs", change.ranks);
    text += change.settings.empty() && where.empty()
                ? "  fits as it is:\n"
                : fmt::format("  {} with {}{}, {} per rank:\n",
                              verdict_of(change.memory, *plan.wish.device_bytes) == Verdict::tight ? "is likely to fit" : "fits",
                              change.effect, where, human(change.memory.total()));
    text += fmt::format("    {}\n", command_with(plan, change.settings));
  }
  return text;
}

}  // namespace

MemoryPlan plan_memory(const config::RunConfig& config, const layout::MemoryWish& wish) {
  layout::mesh_of(config, wish.ranks);
  MemoryPlan plan{.config = config, .batch = config::plan_batch(config, wish.ranks), .wish = wish, .memory = {}};
  plan.memory = layout::rank_memory(config, plan.batch, wish);
  return plan;
}

std::string command_with(const MemoryPlan& plan, const std::vector<std::string>& settings) {
  const auto key = [](const std::string& setting) { return setting.substr(0, setting.find('=') + 1); };
  std::vector<std::string> words = plan.command;
  for (const std::string& given : plan.settings)
    if (std::ranges::none_of(settings, [&](const std::string& other) { return other.starts_with(key(given)); })) words.push_back(given);
  words.insert(words.end(), settings.begin(), settings.end());
  return base::shell_line(words);
}

std::string to_text(const MemoryPlan& plan) {
  const config::RunConfig& c = plan.config;
  std::string text = fmt::format(
      "memory of each of {} rank{}: {}, {} parameters, {}; {} x {} tokens at once, {} micro-batch{} per step\n\n", plan.wish.ranks,
      plan.wish.ranks == 1 ? "" : "s", c.model.name, base::human_count(static_cast<double>(layout::count_parameters(c.model))),
      config::name_of(c.model.dtype), plan.batch.batch_size, c.data.seq_len, plan.batch.gradient_accumulation,
      plan.batch.gradient_accumulation == 1 ? "" : "es");
  const config::ModelConfig unnamed;
  const bool default_shape = c.model.name == unnamed.name && c.model.hidden_size == unnamed.hidden_size;
  if (c.lora.enabled && c.model.path.empty() && default_shape)
    text += "  no model is named, so this is of the default shape: give the folder that the adapters are for, model.path=DIR\n\n";
  bool tensors = true;
  for (const auto& [part, bytes, exact] : plan.memory.parts) {
    if (std::exchange(tensors, part < Part::communicators) && !tensors)
      text += fmt::format("  {:<18}{:>13}   at most at once\n", "in tensors", human(plan.memory.tensors()));
    text += fmt::format("  {:<18}{:>2} {:>10}   {}\n", layout::name_of(part), exact ? "" : "<=", human(bytes), remark(plan, part));
  }
  text += fmt::format("  {:<18}{:>13}\n", "in all", human(plan.memory.total()));
  if (plan.wish.device_bytes) text += verdict_line(plan);
  text += "\n" + placements_text(plan);
  if (plan.wish.device_bytes) text += "\n" + advice_text(plan);
  return text + "\n  <=: at most, or an estimate; the others are the buffers themselves, to the byte.\n";
}

namespace {

void add_advice(nlohmann::ordered_json& json, const MemoryPlan& plan) {
  const Advice advice = advise(plan);
  json["device_bytes"] = *plan.wish.device_bytes;
  json["fits"] = verdict_of(plan.memory, *plan.wish.device_bytes) != Verdict::too_large;
  json["tight"] = verdict_of(plan.memory, *plan.wish.device_bytes) == Verdict::tight;
  json["largest_batch"] = advice.largest_batch.value_or(0);
  json["changes"] = nlohmann::ordered_json::array();
  for (const Change& change : advice.changes)
    json["changes"].push_back({{"effect", change.effect},
                               {"settings", change.settings},
                               {"ranks", change.ranks},
                               {"total", change.memory.total()},
                               {"command", command_with(plan, change.settings)}});
}

}  // namespace

std::string to_json(const MemoryPlan& plan) {
  nlohmann::ordered_json json = {{"ranks", plan.wish.ranks},
                                 {"parameters", layout::count_parameters(plan.config.model)},
                                 {"gradients", form_of(plan)},
                                 {"activations", layout::describe(plan.memory.step.recompute)}};
  for (const auto& [part, bytes, exact] : plan.memory.parts) json[exact ? "exact" : "at_most"][std::string(layout::name_of(part))] = bytes;
  json["tensors"] = plan.memory.tensors();
  json["total"] = plan.memory.total();
  if (plan.memory.offloaded_bytes > 0) json["offloaded_to_host"] = plan.memory.offloaded_bytes;
  for (const PlacementChoice& placement : placements_for(plan.config, plan.wish.ranks))
    for (const config::Recompute policy : policies)
      json["placements"][placement.name()][std::string(config::name_of(policy))] = under(plan, placement, policy).total();
  if (plan.wish.device_bytes) add_advice(json, plan);
  return json.dump();
}

std::int64_t parse_memory(const std::string& text) {
  constexpr std::pair<std::string_view, double> units[] = {{"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30}, {"tib", 0x1p40},
                                                           {"kb", 1e3},     {"mb", 1e6},     {"gb", 1e9},     {"tb", 1e12},
                                                           {"k", 0x1p10},   {"m", 0x1p20},   {"g", 0x1p30},   {"t", 0x1p40}};
  constexpr double least = 1e6;  // a number without a unit is of bytes: 24 is a unit forgotten, not a device
  std::string number = base::lower(base::trim(text));
  double unit = 1;
  for (const auto& [name, bytes] : units) {
    if (!number.ends_with(name)) continue;
    unit = bytes;
    number = base::trim(number.substr(0, number.size() - name.size()));
    break;
  }
  const auto value = base::parse_number(number);
  if (!value || !(*value * unit >= least) || *value * unit > 0x1p60)
    throw base::usage_error("plan", "--memory {} is no amount of memory. For example 24GiB, or 80GB.", text);
  return static_cast<std::int64_t>(*value * unit);
}

std::string in_one_line(const RankMemory& memory) {
  std::vector<std::string> words;
  for (const auto& [part, bytes, exact] : memory.parts) {
    if (bytes * 50 >= memory.total()) words.push_back(fmt::format("{} {}", layout::name_of(part), human(bytes)));
  }
  return fmt::format("{} per rank: {}", human(memory.total()), base::join(words, ", "));
}

}  // namespace lockstep::plan
