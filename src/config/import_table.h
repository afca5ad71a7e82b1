// What the tables of other programs are made of: a row says what becomes of one of their keys. Used inside this room.
#pragma once

#include <yaml-cpp/yaml.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/import.h"

namespace lockstep::config {

class Importer;

struct ImportRow {
  enum class Action {
    copy,     // the value goes to our key as it is
    flag,     // true sets our key to `value`; false changes nothing
    ignore,   // harmless; `text` says why
    refuse,   // cannot be done here; `text` says what to do
    off,      // harmless while off, refused when on
    convert,  // a function decides
  };
  std::string_view theirs;
  Action action;
  std::string_view text = {};   // our key, or the reason
  std::string_view value = {};  // of a flag
  void (*converter)(Importer&, const YAML::Node&) = nullptr;
};

constexpr ImportRow copied(std::string_view theirs, std::string_view ours) { return {theirs, ImportRow::Action::copy, ours}; }
constexpr ImportRow flagged(std::string_view theirs, std::string_view ours, std::string_view value) {
  return {theirs, ImportRow::Action::flag, ours, value};
}
constexpr ImportRow ignored(std::string_view theirs, std::string_view why) { return {theirs, ImportRow::Action::ignore, why}; }
constexpr ImportRow refused(std::string_view theirs, std::string_view why) { return {theirs, ImportRow::Action::refuse, why}; }
constexpr ImportRow only_off(std::string_view theirs, std::string_view why) { return {theirs, ImportRow::Action::off, why}; }
constexpr ImportRow converted(std::string_view theirs, void (*converter)(Importer&, const YAML::Node&)) {
  return {theirs, ImportRow::Action::convert, {}, {}, converter};
}

// A default of theirs that is not ours: set unless the file says otherwise. With `only_with`, only if the file has that key.
struct ImportDefault {
  std::string_view theirs;
  std::string_view ours;
  std::string_view value;
  std::string_view only_with = {};
};

struct ImportProgram {
  std::string_view name;                // "Axolotl"
  std::string_view word;                // "axolotl", for --from
  std::vector<std::string_view> signs;  // keys that only this program has
  std::span<const ImportRow> rows;      // a row may end in *: every key that begins so
  std::span<const ImportDefault> defaults;
};
const ImportProgram& axolotl();
const ImportProgram& llama_factory();
const ImportProgram& hugging_face();

// What a converter works with: the whole file, and what becomes of the key at hand.
class Importer {
 public:
  explicit Importer(const YAML::Node& file, std::filesystem::path path) : file_(file), path_(std::move(path)) {}

  const YAML::Node& file() const { return file_; }
  const std::filesystem::path& path() const { return path_; }
  std::string text(std::string_view key) const;  // a scalar at the top of their file; "" where there is none
  bool on(std::string_view key) const;           // true, yes, 1
  bool has(std::string_view key) const;          // there, and not empty

  // Each call adds a line for the key at hand. set() refuses a value that our setting does not take, with its rule.
  void set(std::string_view ours, const std::string& value);
  void set(std::string_view ours, const YAML::Node& value);
  void ignore(std::string_view why);
  void refuse(std::string_view why);

  // A part of the key at hand: "datasets[0].type".
  void enter(std::string theirs, const YAML::Node& value);

  void run(const ImportProgram& program);
  ImportedFile result() &&;

 private:
  void take(const ImportProgram& program, const std::string& key, const YAML::Node& value);
  void apply(const ImportRow& row, const YAML::Node& value);
  void unknown(const std::string& key, const YAML::Node& value);
  void add(ImportedKey::Fate fate, std::string says);

  struct Assigned {
    std::string theirs, value;  // value as YAML
  };
  YAML::Node file_;
  std::filesystem::path path_;
  ImportedKey current_;
  std::vector<std::pair<std::string, Assigned>> assigned_;  // by our key
  ImportedFile result_;
};

std::string import_text(const YAML::Node& value);  // a value as it reads in a report

// Conversions that several programs share.
void import_model(Importer& to, const YAML::Node& value);
void import_data_path(Importer& to, const YAML::Node& value);
void import_optimizer(Importer& to, const YAML::Node& value);
void import_schedule(Importer& to, const YAML::Node& value);
void import_warmup_ratio(Importer& to, const YAML::Node& value);
void import_bf16(Importer& to, const YAML::Node& value);
void import_recompute(Importer& to, const YAML::Node& value);
void import_save_strategy(Importer& to, const YAML::Node& value);
void import_eval_strategy(Importer& to, const YAML::Node& value);
void import_interval(Importer& to, std::string_view ours, const YAML::Node& value);  // steps, or a share of max_steps
void import_save_steps(Importer& to, const YAML::Node& value);
void import_eval_steps(Importer& to, const YAML::Node& value);
void import_logging_steps(Importer& to, const YAML::Node& value);
void import_max_steps(Importer& to, const YAML::Node& value);
void import_report_to(Importer& to, const YAML::Node& value);
void import_train_on_inputs(Importer& to, const YAML::Node& value);
void import_lora_targets(Importer& to, const YAML::Node& value);
void import_resume(Importer& to, const YAML::Node& value);
void import_validation_size(Importer& to, const YAML::Node& value);
void import_output(Importer& to, const YAML::Node& value);

}  // namespace lockstep::config
