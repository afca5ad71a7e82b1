// Conversions of learning rate, warm-up, steps, intervals, precision and recomputing.
#include <array>
#include <cmath>

#include "base/text.h"
#include "config/import/table.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

struct Renamed {
  std::string_view theirs, ours;
};

constexpr std::array optimizers = std::to_array<Renamed>({
    {"adamw", "adamw"},
    {"adamw_torch", "adamw"},
    {"adamw_torch_fused", "adamw"},
    {"adamw_torch_npu_fused", "adamw"},
    {"adamw_torch_xla", "adamw"},
    {"adamw_hf", "adamw"},
    {"adamw_apex_fused", "adamw"},
    {"adamw_anyprecision", "adamw"},
    {"paged_adamw", "adamw"},
    {"paged_adamw_32bit", "adamw"},
    {"adamw_8bit", "adamw_8bit"},
    {"adamw_bnb_8bit", "adamw_8bit"},
    {"paged_adamw_8bit", "adamw_8bit"},
    {"adamw_torch_8bit", "adamw_8bit"},
    {"ao_adamw_8bit", "adamw_8bit"},
    {"adafactor", "adafactor"},
    {"lion", "lion"},
    {"lion_pytorch", "lion"},
    {"lion_32bit", "lion"},
    {"lion_8bit", "lion"},
    {"paged_lion_32bit", "lion"},
    {"paged_lion_8bit", "lion"},
    {"sgd", "sgd"},
    {"muon", "muon"},
});

constexpr std::array schedules = std::to_array<Renamed>({
    {"linear", "linear"},
    {"cosine", "cosine"},
    {"cosine_with_min_lr", "cosine"},
    {"constant", "constant"},
    {"constant_with_warmup", "constant"},
    {"warmup_stable_decay", "wsd"},
});

template <std::size_t size>
std::string renamed(const YAML::Node& value, const std::array<Renamed, size>& table) {
  for (const Renamed& one : table) {
    if (one.theirs == import_word(value)) return std::string(one.ours);
  }
  return "";
}

std::optional<double> number_of(const YAML::Node& value) { return value.IsScalar() ? base::parse_number(value.Scalar()) : std::nullopt; }

std::string schedule_of(const Importer& to) {
  const YAML::Node node = to.file()[to.has("lr_scheduler") ? "lr_scheduler" : "lr_scheduler_type"];
  return node && node.IsScalar() ? import_word(node) : "";
}

std::optional<double> steps_of(const Importer& to) {
  const auto steps = base::parse_number(to.text("max_steps"));
  return steps && *steps > 0 ? steps : std::nullopt;
}

constexpr std::string_view no_warmup = "the schedule `constant` has no warm-up in transformers";

// Steps, or a share of all steps.
void import_interval(Importer& to, std::string_view ours, const YAML::Node& value) {
  const auto number = number_of(value);
  if (!number || *number < 0) return to.refuse("must be a number of steps");
  if (*number >= 1 || *number == 0) return to.set(ours, value);
  const auto steps = steps_of(to);
  if (!steps) return to.refuse(fmt::format("a share of all steps, whose number is not known: set {}", ours));
  to.set(ours, fmt::format("{}", static_cast<std::int64_t>(std::ceil(*number * *steps))));
}

void scheduler_argument(Importer& to, const std::string& name, const YAML::Node& value) {
  const auto number = number_of(value), rate = base::parse_number(to.text("learning_rate")), steps = steps_of(to);
  if (name == "min_lr_rate" || name == "min_lr_ratio") return to.set("trainer.min_lr_ratio", value);
  if (name == "min_lr" && number && rate && *rate > 0) return to.set("trainer.min_lr_ratio", fmt::format("{}", *number / *rate));
  if (name == "num_decay_steps" && number && steps) return to.set("trainer.decay_fraction", fmt::format("{}", *number / *steps));
  if (name == "num_stable_steps") return to.ignore("what warm-up and decay leave");
  if (name == "num_cycles" && number == 0.5 && schedule_of(to) == "cosine") return to.ignore("as here");
  if ((name == "decay_type" || name == "warmup_type") && import_word(value) == "linear") return to.ignore("as here");
  to.refuse("say it in the section trainer: min_lr_ratio, decay_fraction");
}

}  // namespace

bool import_has_warmup(const Importer& to) { return schedule_of(to) != "constant"; }

void import_optimizer(Importer& to, const YAML::Node& value) {
  const std::string ours = renamed(value, optimizers);
  if (ours.empty())
    return to.refuse("there is none of this name here; choose trainer.optimizer: adamw, adamw_8bit, lion, sgd, adafactor or muon");
  to.set("trainer.optimizer", ours);
}

void import_schedule(Importer& to, const YAML::Node& value) {
  const std::string ours = renamed(value, schedules);
  if (ours.empty()) return to.refuse("there is none of this name here; choose trainer.lr_schedule: constant, linear, cosine or wsd");
  to.set("trainer.lr_schedule", ours);
  const YAML::Node arguments = to.file()["lr_scheduler_kwargs"];
  const bool straight = arguments && arguments.IsMap() && arguments["decay_type"] && import_word(arguments["decay_type"]) == "linear";
  if (ours == "wsd" && !straight) to.note("the rate falls along a line here; along a cosine in transformers");
}

void import_scheduler_kwargs(Importer& to, const YAML::Node& value) {
  if (import_is_off(value)) return to.ignore("empty");
  if (!value.IsMap()) return to.refuse("must be a map");
  for (const auto& item : value) {
    to.enter("lr_scheduler_kwargs." + item.first.Scalar(), item.second);
    scheduler_argument(to, item.first.Scalar(), item.second);
  }
}

void import_warmup_steps(Importer& to, const YAML::Node& value) {
  const auto steps = number_of(value);
  if (!import_has_warmup(to)) return to.ignore(no_warmup);
  if (steps && *steps > 0 && *steps < 1) return to.set("trainer.warmup_ratio", value);  // as transformers 5 has it
  to.set("trainer.warmup_steps", value);
}

void import_warmup_ratio(Importer& to, const YAML::Node& value) {
  if (!import_has_warmup(to)) return to.ignore(no_warmup);
  if (const auto steps = base::parse_number(to.text("warmup_steps")); steps && *steps > 0) return to.ignore("warmup_steps says it");
  to.set("trainer.warmup_ratio", value);
}

void import_bf16(Importer& to, const YAML::Node& value) {
  const std::string text = import_word(value);
  if (text == "auto" || text == "full" || read_boolean(text).value_or(false)) return to.set("model.dtype", "bf16");
  if (read_boolean(text)) return to.ignore("off");
  to.refuse("must be true, false or auto");
}

void import_recompute(Importer& to, const YAML::Node& value) {
  const std::string text = import_word(value);
  if (text == "offload" || text == "offload_disk") {
    to.set("trainer.recompute", "blocks");
    return to.set("trainer.offload_checkpoints", "true");
  }
  if (text == "unsloth" || read_boolean(text).value_or(false)) return to.set("trainer.recompute", "blocks");
  if (read_boolean(text)) return to.ignore("trainer.recompute = auto keeps all that memory holds");
  to.refuse("must be true, false or offload");
}

void import_save_strategy(Importer& to, const YAML::Node& value) {
  const std::string text = import_word(value);
  if (text == "no") return to.set("trainer.save_interval", "0");
  if (text == "steps") return to.ignore("trainer.save_interval says how many");
  to.ignore("a checkpoint comes every trainer.save_interval steps and at the end, and the best one stays");
}

void import_eval_strategy(Importer& to, const YAML::Node& value) {
  const std::string text = import_word(value);
  if (text == "no") return to.ignore("without validation data there is no evaluation");
  if (text == "steps") return to.ignore("trainer.eval_interval says how many");
  to.ignore("evaluation comes every trainer.eval_interval steps and at the end");
}

void import_save_steps(Importer& to, const YAML::Node& value) {
  const YAML::Node strategy = to.file()["save_strategy"];
  if (strategy && import_word(strategy) != "steps") return to.ignore("save_strategy is not steps");
  import_interval(to, "trainer.save_interval", value);
}

void import_eval_steps(Importer& to, const YAML::Node& value) {
  const YAML::Node strategy = to.file()[to.has("eval_strategy") ? "eval_strategy" : "evaluation_strategy"];
  if (strategy && import_word(strategy) != "steps") return to.ignore("the strategy is not steps");
  import_interval(to, "trainer.eval_interval", value);
}

void import_logging_steps(Importer& to, const YAML::Node& value) { import_interval(to, "trainer.log_interval", value); }

void import_max_steps(Importer& to, const YAML::Node& value) {
  const auto steps = value.IsScalar() ? base::parse_integer(value.Scalar()) : std::nullopt;
  if (steps && *steps <= 0) return to.ignore("the epochs say it");
  to.set("trainer.max_steps", value);
}

void import_epochs(Importer& to, const YAML::Node& value) {
  steps_of(to) ? to.ignore("max_steps says it") : to.set("trainer.num_epochs", value);
}

}  // namespace lockstep::config
