// Conversions of keys that mean the same in several programs: model, data, adapters, folders.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "config/import/table.h"
#include "config/model_folder.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

// The longest text that the model's folder allows; nothing where there is no folder, or one that cannot be read.
std::optional<std::int64_t> longest_of(const Importer& to) {
  if (!to.has_model_folder()) return std::nullopt;
  try {
    return read_model_folder(to.model()).model.max_seq_len;
  } catch (const base::UserError&) {
    return std::nullopt;
  }
}

}  // namespace

std::string scalar(const YAML::Node& value) { return value && value.IsScalar() ? value.Scalar() : ""; }

void import_model(Importer& to, const YAML::Node& value) {
  std::error_code error;
  if (fs::is_directory(scalar(value), error)) return to.set("model.path", scalar(value));
  to.refuse("no such folder here, and nothing is downloaded while training: fetch the model and give its folder, --model DIR");
}

bool import_is_data_file(const std::string& name) {
  static constexpr std::array endings = {".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt", ".bin", ".parquet"};
  bool file = name.starts_with("/") || name.starts_with("./");
  for (const std::string_view ending : endings) file = file || name.ends_with(ending);
  std::error_code error;
  return file || fs::exists(name, error);
}

void import_data_path(Importer& to, const YAML::Node& value) {
  if (import_is_data_file(scalar(value))) return to.set("data.path", scalar(value));
  to.refuse("no file here, and nothing is downloaded while training: fetch it as JSONL or Parquet and give it with --data FILE");
}

// A model that is to come with --model brings its own longest text; a run without one must not be held to the default's.
void import_length(Importer& to, const YAML::Node& value) {
  const auto length = base::parse_integer(scalar(value)), longest = longest_of(to);
  if (length && longest && *length > *longest)
    return to.refuse(fmt::format("the model's folder allows {} tokens (max_position_embeddings in config.json)", *longest));
  to.set("data.seq_len", value);
  if (!to.has_model_folder() && to.assigned("data.seq_len") == scalar(value)) to.set("model.max_seq_len", value);
}

void fill_in_length(Importer& to, std::string_view theirs, std::int64_t length) {
  const std::int64_t fits = std::min(length, longest_of(to).value_or(length));
  to.fill_in(theirs, "data.seq_len", std::to_string(fits));
  if (!to.has_model_folder() && to.assigned("data.seq_len") == std::to_string(fits))
    to.fill_in(theirs, "model.max_seq_len", std::to_string(fits));
}

void import_train_on_inputs(Importer& to, const YAML::Node& value) {
  const auto yes = value.IsScalar() ? read_boolean(value.Scalar()) : std::nullopt;
  if (!yes) return to.refuse("must be true or false");
  // LLaMA-Factory's mask_history says more than that prompts are not trained.
  if (!*yes && (!to.assigned("data.train_on").empty() || to.on("mask_history"))) return to.ignore("as here");
  to.set("data.train_on", *yes ? "all" : "auto");
}

void import_lora_targets(Importer& to, const YAML::Node& value) {
  const std::string text = scalar(value);
  if (text == "all" || text == "all-linear") return to.set("lora.target_modules", "[all-linear]");
  if (text.find_first_of("\\(*^$|+[") != std::string::npos)
    return to.refuse("a pattern; list the names in lora.target_modules: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj");
  to.set("lora.target_modules", value);
}

void fill_in_lora_targets(Importer& to, std::string_view theirs) {
  if (to.assigned("lora.enabled") == "true") to.fill_in(theirs, "lora.target_modules", "[q_proj, v_proj]");
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
  std::string folder = scalar(value);
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  if (folder.empty()) return to.refuse("must be a folder");
  const fs::path path(folder);
  const std::string name = path.filename().string();
  if (name.empty() || name == "." || name == "..") return to.set("output", folder);  // the run is named by model and time
  to.set("name", name);
  to.set("output", path.has_parent_path() ? path.parent_path().string() : ".");
}

void import_timeout(Importer& to, const YAML::Node& value) {
  constexpr double their_default_s = 1800, longest_s = 1e7;
  const auto seconds = base::parse_number(import_text(value));
  if (seconds && *seconds == their_default_s) return to.ignore("their default; parallel.timeout_s");
  if (seconds && *seconds > longest_s) return to.ignore("as good as none; parallel.timeout_s");
  to.set("parallel.timeout_s", value);
}

void import_report_to(Importer& to, const YAML::Node& value) {
  const std::string text = base::lower(import_text(value));
  const bool all = text == "all" || text == "[all]";
  const bool tensorboard = all || text.find("tensorboard") != text.npos, wandb = all || text.find("wandb") != text.npos;
  if (tensorboard) to.set("monitor.tensorboard", "true");
  if (wandb) to.set("monitor.wandb", "true");
  if (!tensorboard && !wandb) to.ignore("every run writes metrics.jsonl");
}

// Naming a project is how files of theirs ask for W&B.
void import_wandb_project(Importer& to, const YAML::Node& value) {
  if (import_is_off(value)) return to.ignore("off");
  to.set("monitor.wandb", "true");
  to.set("monitor.wandb_project", value);
}

void import_quant_type(Importer& to, const YAML::Node& value) {
  import_word(value) == "nf4" ? to.ignore("as here") : to.refuse("4-bit weights are NF4");
}

}  // namespace lockstep::config
