// Conversions of keys that mean the same in several programs.
#include <array>
#include <cmath>

#include "base/text.h"
#include "config/import_table.h"
#include "config/value.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

struct Renamed {
  std::string_view theirs, ours;
};

constexpr std::array optimizers = std::to_array<Renamed>({
    {"adamw", "adamw"},
    {"adamw_torch", "adamw"},
    {"adamw_torch_fused", "adamw"},
    {"adamw_torch_npu_fused", "adamw"},
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

// transformers writes enums as "SchedulerType.COSINE", "IntervalStrategy.STEPS", "OptimizerNames.ADAMW_TORCH".
std::string word(const YAML::Node& value) {
  if (!value.IsScalar()) return "";
  const std::string text = base::lower(value.Scalar());
  return text.substr(text.rfind('.') + 1);
}

template <std::size_t size>
void rename(Importer& to, const YAML::Node& value, std::string_view ours, const std::array<Renamed, size>& table, std::string_view known) {
  for (const Renamed& one : table) {
    if (one.theirs == word(value)) return to.set(ours, std::string(one.ours));
  }
  to.refuse(fmt::format("there is none of this name here; choose {}: {}", ours, known));
}

}  // namespace

void import_model(Importer& to, const YAML::Node& value) {
  const std::string name = value.IsScalar() ? value.Scalar() : "";
  std::error_code error;
  if (fs::is_directory(name, error)) return to.set("model.path", name);
  to.refuse("no such folder here, and nothing is downloaded while training: fetch the model and give its folder, --model DIR");
}

void import_data_path(Importer& to, const YAML::Node& value) {
  const std::string name = value.IsScalar() ? value.Scalar() : "";
  static constexpr std::array endings = {".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt", ".bin"};
  bool file = name.starts_with("/") || name.starts_with("./");
  for (const std::string_view ending : endings) file = file || name.ends_with(ending);
  std::error_code error;
  if (file || fs::exists(name, error)) return to.set("data.path", name);
  to.refuse("no file here, and nothing is downloaded while training: fetch it as JSONL and give it with --data FILE");
}

void import_optimizer(Importer& to, const YAML::Node& value) {
  rename(to, value, "trainer.optimizer", optimizers, "adamw, adamw_8bit, lion, sgd, adafactor or muon");
}

void import_schedule(Importer& to, const YAML::Node& value) {
  rename(to, value, "trainer.lr_schedule", schedules, "constant, linear, cosine or wsd");
}

void import_warmup_ratio(Importer& to, const YAML::Node& value) {
  const auto ratio = value.IsScalar() ? base::parse_number(value.Scalar()) : std::nullopt;
  if (!ratio || *ratio < 0 || *ratio > 1) return to.refuse("must be a share, from 0 to 1");
  if (*ratio == 0) return to.ignore("no warm-up, as by default here");
  if (const auto steps = base::parse_number(to.text("warmup_steps")); steps && *steps > 0) return to.ignore("warmup_steps says it");
  const auto steps = base::parse_number(to.text("max_steps"));
  if (!steps || *steps <= 0)
    return to.refuse("how many steps there are is known when the data is: `lockstep train --dry-run` says it; set trainer.warmup_steps");
  to.set("trainer.warmup_steps", fmt::format("{}", static_cast<std::int64_t>(std::ceil(*ratio * *steps))));
}

void import_bf16(Importer& to, const YAML::Node& value) {
  const std::string text = word(value);
  if (text == "auto" || text == "full" || read_boolean(text).value_or(false)) return to.set("model.dtype", "bf16");
  if (read_boolean(text)) return to.ignore("off");
  to.refuse("must be true, false or auto");
}

void import_recompute(Importer& to, const YAML::Node& value) {
  const std::string text = word(value);
  if (text == "offload" || text == "offload_disk") {
    to.set("trainer.recompute", "blocks");
    return to.set("trainer.offload_checkpoints", "true");
  }
  if (text == "unsloth" || read_boolean(text).value_or(false)) return to.set("trainer.recompute", "blocks");
  if (read_boolean(text)) return to.ignore("trainer.recompute = auto keeps all that memory holds");
  to.refuse("must be true, false or offload");
}

void import_save_strategy(Importer& to, const YAML::Node& value) {
  const std::string text = word(value);
  if (text == "no") return to.set("trainer.save_interval", "0");
  if (text == "steps") return to.ignore("trainer.save_interval says how many");
  to.ignore("a checkpoint comes every trainer.save_interval steps and at the end, and the best one stays");
}

void import_eval_strategy(Importer& to, const YAML::Node& value) {
  const std::string text = word(value);
  if (text == "no")
    return to.has("val_set_size") || to.has("val_size") ? to.ignore("a validation share is given")
                                                        : to.set("data.validation_fraction", "0");
  if (text == "steps") return to.ignore("trainer.eval_interval says how many");
  to.ignore("evaluation comes every trainer.eval_interval steps and at the end");
}

void import_interval(Importer& to, std::string_view ours, const YAML::Node& value) {
  const auto number = value.IsScalar() ? base::parse_number(value.Scalar()) : std::nullopt;
  if (!number || *number < 0) return to.refuse("must be a number of steps");
  if (*number >= 1 || *number == 0) return to.set(ours, value);
  const auto steps = base::parse_number(to.text("max_steps"));
  if (!steps || *steps <= 0) return to.refuse(fmt::format("a share of all steps, whose number is not known: set {}", ours));
  to.set(ours, fmt::format("{}", static_cast<std::int64_t>(std::ceil(*number * *steps))));
}

void import_save_steps(Importer& to, const YAML::Node& value) {
  const YAML::Node strategy = to.file()["save_strategy"];
  if (strategy && word(strategy) != "steps") return to.ignore("save_strategy is not steps");
  import_interval(to, "trainer.save_interval", value);
}

void import_eval_steps(Importer& to, const YAML::Node& value) {
  const YAML::Node strategy = to.file()[to.has("eval_strategy") ? "eval_strategy" : "evaluation_strategy"];
  if (strategy && word(strategy) != "steps") return to.ignore("the strategy is not steps");
  import_interval(to, "trainer.eval_interval", value);
}

void import_logging_steps(Importer& to, const YAML::Node& value) { import_interval(to, "trainer.log_interval", value); }

void import_max_steps(Importer& to, const YAML::Node& value) {
  const auto steps = value.IsScalar() ? base::parse_integer(value.Scalar()) : std::nullopt;
  if (steps && *steps <= 0) return to.ignore("the epochs say it");
  to.set("trainer.max_steps", value);
}

void import_report_to(Importer& to, const YAML::Node& value) {
  const std::string text = base::lower(import_text(value));
  if (text.find("tensorboard") != text.npos || text == "all") return to.set("monitor.tensorboard", "true");
  to.ignore("every run writes metrics.jsonl");
}

void import_train_on_inputs(Importer& to, const YAML::Node& value) {
  const auto yes = value.IsScalar() ? read_boolean(value.Scalar()) : std::nullopt;
  if (!yes) return to.refuse("must be true or false");
  to.set("data.train_on", *yes ? "all" : "auto");
}

void import_lora_targets(Importer& to, const YAML::Node& value) {
  if (value.IsScalar() && (value.Scalar() == "all" || value.Scalar() == "all-linear")) return to.set("lora.target_modules", "[all-linear]");
  if (value.IsScalar() && value.Scalar().find_first_of("\\(*^$") != std::string::npos)
    return to.refuse("a pattern; list the names in lora.target_modules: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj");
  to.set("lora.target_modules", value);
}

void import_resume(Importer& to, const YAML::Node& value) {
  if (value.IsScalar() && read_boolean(value.Scalar())) {
    return *read_boolean(value.Scalar()) ? to.set("checkpoint.resume", "auto") : to.ignore("off");
  }
  to.refuse("a checkpoint of the other program: its model or adapter folder can be gone on from with --model or --adapter");
}

void import_validation_size(Importer& to, const YAML::Node& value) {
  const auto size = value.IsScalar() ? base::parse_number(value.Scalar()) : std::nullopt;
  if (size && *size >= 1) return to.refuse("a number of records; give a share, data.validation_fraction, or a file, data.validation_path");
  to.set("data.validation_fraction", value);
}

void import_output(Importer& to, const YAML::Node& value) {
  std::string folder = value.IsScalar() ? value.Scalar() : "";
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  const fs::path path(folder);
  if (path.filename().empty()) return to.refuse("must be a folder");
  to.set("name", path.filename().string());
  to.set("output", path.has_parent_path() ? path.parent_path().string() : ".");
}

}  // namespace lockstep::config
