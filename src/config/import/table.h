// What the tables of other programs are made of: a row says what becomes of one of their keys. Used inside this folder.
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/import/import.h"

namespace lockstep::config {

class Importer;
using Converter = void (*)(Importer&, const YAML::Node&);

struct ImportRow {
  enum class Action {
    copy,     // the value goes to our key as it is
    flag,     // true sets our key to `value`; false changes nothing
    ignore,   // harmless; `text` says why
    refuse,   // cannot be done here; `text` says what to do
    off,      // harmless while off, refused when on
    note,     // goes on without it; `text` says what a person should know. Harmless while off
    only,     // harmless where it is one of `value` ("a|b"), refused otherwise
    stop,     // when on, the whole file is of another training: nothing is made of it
    convert,  // a function decides; `text` names our keys that it sets
  };
  std::string_view theirs;  // a row may end in *: every key that begins so
  Action action;
  std::string_view text = {};   // our key, or the reason
  std::string_view value = {};  // of a flag, or those that are harmless
  Converter converter = nullptr;
};

constexpr ImportRow copied(std::string_view theirs, std::string_view ours) { return {theirs, ImportRow::Action::copy, ours}; }
constexpr ImportRow flagged(std::string_view theirs, std::string_view ours, std::string_view value) {
  return {theirs, ImportRow::Action::flag, ours, value};
}
constexpr ImportRow ignored(std::string_view theirs, std::string_view why) { return {theirs, ImportRow::Action::ignore, why}; }
constexpr ImportRow refused(std::string_view theirs, std::string_view why) { return {theirs, ImportRow::Action::refuse, why}; }
constexpr ImportRow only_off(std::string_view theirs, std::string_view why) { return {theirs, ImportRow::Action::off, why}; }
constexpr ImportRow noted(std::string_view theirs, std::string_view what) { return {theirs, ImportRow::Action::note, what}; }
constexpr ImportRow only(std::string_view theirs, std::string_view values, std::string_view why) {
  return {theirs, ImportRow::Action::only, why, values};
}
constexpr ImportRow stops(std::string_view theirs, std::string_view why) { return {theirs, ImportRow::Action::stop, why}; }
constexpr ImportRow converted(std::string_view theirs, std::string_view ours, Converter converter) {
  return {theirs, ImportRow::Action::convert, ours, {}, converter};
}

// A default of theirs that is not ours: set unless the file, or a key that was mapped before, says otherwise.
struct ImportDefault {
  std::string_view theirs;
  std::string_view ours;
  std::string_view value;
};

// The row that says what becomes of a key; nothing for a key that the table does not know.
const ImportRow* import_row(std::span<const ImportRow> rows, std::string_view key);

struct ImportProgram {
  std::string_view name;                // "Axolotl"
  std::string_view word;                // "axolotl", for --from
  std::vector<std::string_view> signs;  // keys that tell its files
  std::span<const ImportRow> rows;
  std::span<const ImportDefault> defaults;
  void (*fill_in)(Importer&) = nullptr;  // defaults that hang on other keys
  std::string_view model_key = {};       // the key that names the model, or part.key
};
const ImportProgram& axolotl();
const ImportProgram& llama_factory();
const ImportProgram& llama_factory_v1();
const ImportProgram& trl();
const ImportProgram& unsloth();
// A program's own rows, then those of the program that it is built on.
template <typename Rows, typename Row>
std::vector<Row> followed_by(const Rows& own, std::span<const Row> others) {
  std::vector<Row> all(own.begin(), own.end());
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

const ImportProgram& hugging_face();
const ImportProgram& torchtune();
const ImportProgram& accelerate();
const ImportProgram& deepspeed();
std::span<const ImportProgram* const> import_programs();  // all of them

// What a converter works with: the whole file, and what becomes of the key at hand.
class Importer {
 public:
  Importer(const YAML::Node& file, std::filesystem::path path, const ImportProgram& program)
      : file_(file), path_(std::move(path)), program_(program) {}

  const YAML::Node& file() const { return file_; }
  const ImportProgram& program() const { return program_; }
  std::string text(std::string_view key) const;       // a scalar at the top of their file; "" where there is none
  bool on(std::string_view key) const;                // true, yes, 1
  bool has(std::string_view key) const;               // there, and not empty
  std::string model() const;                          // what the file names as its model; "" where nothing
  bool has_model_folder() const;                      // it is a folder here
  std::string assigned(std::string_view ours) const;  // what was set so far, as YAML; "" where nothing was

  // Each call adds a line for the key at hand. set() refuses a value that our setting does not take, with its rule.
  void set(std::string_view ours, const std::string& value);
  void set(std::string_view ours, const YAML::Node& value);
  void note(std::string_view what);  // goes on, but not word for word as there: a person should know
  void ignore(std::string_view why);
  void refuse(std::string_view why);
  [[noreturn]] void stop(std::string_view why);  // the file is of another training: UserError that names the key

  // A default of theirs, unless our key has a value or their key is in the file.
  void fill_in(std::string_view theirs, std::string_view ours, const std::string& value);

  // A part of the key at hand: "datasets[0].type".
  void enter(std::string theirs, const YAML::Node& value);
  // Keys of a map, each "place.key", by rows of their own; `whose` keys they are, where not the program's.
  void walk(const std::string& place, const YAML::Node& map, std::span<const ImportRow> rows, std::string_view whose = {});
  // A map of another file: lines in the report stay that of the key that names the file.
  void walk_other_file(const std::string& place, const YAML::Node& map, std::span<const ImportRow> rows, std::string_view whose = {});
  void apply(const ImportRow& row, const YAML::Node& value);  // to the key at hand
  const YAML::Node& section() const { return *section_; }     // the map whose keys are being walked
  std::string key() const { return current_.theirs; }         // the key at hand

  void run();
  ImportedFile result() &&;

 private:
  void take(std::span<const ImportRow> rows, const std::string& key, const YAML::Node& value, std::string_view whose);
  void unknown(std::span<const ImportRow> rows, const std::string& key, std::string_view whose);
  void add(ImportedKey::Fate fate, std::string says);

  struct Assigned {
    std::string theirs, value;  // value as YAML
  };
  YAML::Node file_;
  std::filesystem::path path_;
  const ImportProgram& program_;
  ImportedKey current_;
  const YAML::Node* section_ = &file_;
  bool in_other_file_ = false;
  std::vector<std::pair<std::string, Assigned>> assigned_;  // by our key
  ImportedFile result_;
};

std::string import_text(const YAML::Node& value);  // a value as it reads in a report
std::string scalar(const YAML::Node& value);       // "" where there is none
std::string import_word(const YAML::Node& value);  // a scalar in lower case, without the class that transformers writes before an enum
bool import_is_off(const YAML::Node& value);       // false, 0, none, null, empty

// Reasons that several tables give.
inline constexpr std::string_view own_kernels = "Lockstep's own fused kernels are always on";
inline constexpr std::string_view no_tracker =
    "every run writes metrics.jsonl; monitor.tensorboard and monitor.wandb write files for those";
inline constexpr std::string_view one_axis = "a model is cut into shards alone, parallel.shard: docs/shards.md";
inline constexpr std::string_view no_remote_code = "code of a model is never run; the families in docs/finetuning.md are built in";
inline constexpr std::string_view no_preferences = "preference and reward training are not built: Lockstep trains on text and answers";
inline constexpr std::string_view stays_on_gpus =
    "weights and states stay on the GPUs: where memory is short use more ranks, or trainer.recompute=blocks";
inline constexpr std::string_view launcher = "lockstep starts and numbers the ranks";
inline constexpr std::string_view generation = "`lockstep generate` writes texts";
inline constexpr std::string_view no_media = "models of images, video and sound are not built: Lockstep trains language models on text";
inline constexpr std::string_view no_hub = "nothing is uploaded; `lockstep merge` and the adapter folder give what can be";
inline constexpr std::string_view one_set = "one set of records is read: put files of one format together, --data one.jsonl,two.jsonl";

// Conversions that several programs share (shared.cpp, steps.cpp, sharding/).
void import_zero(Importer& to, const YAML::Node& value);
void import_deepspeed(Importer& to, const YAML::Node& value);
void import_deepspeed_config(Importer& to, const YAML::Node& value);
void import_fsdp(Importer& to, const YAML::Node& value);
void import_groups(Importer& to, const YAML::Node& value);
void import_shard_size(Importer& to, const YAML::Node& value);
void import_fsdp_config(Importer& to, const YAML::Node& value);
void import_fsdp_checkpointing(Importer& to, const YAML::Node& value);
void import_model(Importer& to, const YAML::Node& value);
void import_data_path(Importer& to, const YAML::Node& value);
bool import_is_data_file(const std::string& name);  // by its name, or because it is there
void import_length(Importer& to, const YAML::Node& value);
void import_optimizer(Importer& to, const YAML::Node& value);
void import_schedule(Importer& to, const YAML::Node& value);
void import_scheduler_kwargs(Importer& to, const YAML::Node& value);
void import_warmup_steps(Importer& to, const YAML::Node& value);
void import_warmup_ratio(Importer& to, const YAML::Node& value);
void import_bf16(Importer& to, const YAML::Node& value);
void import_recompute(Importer& to, const YAML::Node& value);
void import_save_strategy(Importer& to, const YAML::Node& value);
void import_eval_strategy(Importer& to, const YAML::Node& value);
void import_save_steps(Importer& to, const YAML::Node& value);
void import_eval_steps(Importer& to, const YAML::Node& value);
void import_logging_steps(Importer& to, const YAML::Node& value);
void import_max_steps(Importer& to, const YAML::Node& value);
void import_epochs(Importer& to, const YAML::Node& value);
void import_report_to(Importer& to, const YAML::Node& value);
void import_wandb_project(Importer& to, const YAML::Node& value);
void import_train_on_inputs(Importer& to, const YAML::Node& value);
void import_lora_targets(Importer& to, const YAML::Node& value);
void import_resume(Importer& to, const YAML::Node& value);
void import_validation_size(Importer& to, const YAML::Node& value);
void import_output(Importer& to, const YAML::Node& value);
void import_timeout(Importer& to, const YAML::Node& value);
void import_quant_type(Importer& to, const YAML::Node& value);
bool import_has_warmup(const Importer& to);  // the schedule of the file knows one

// Chat templates: one named by the program (templates.cpp), or its text or file.
void import_named_template(Importer& to, const std::string& name);
void import_template(Importer& to, const YAML::Node& value);

void fill_in_length(Importer& to, std::string_view theirs, std::int64_t length);
void fill_in_lora_targets(Importer& to, std::string_view theirs);  // what PEFT takes by itself

}  // namespace lockstep::config
