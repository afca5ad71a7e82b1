// Files of other programs (Axolotl, LLaMA-Factory, TRL, TrainingArguments, torchtune, accelerate, DeepSpeed) as a run file of ours, with
// what became of every key.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::config {

// One key of the file, or a default of the other program that differs from ours.
struct ImportedKey {
  enum class Fate { mapped, filled_in, noted, ignored, refused };
  Fate fate;
  int line = 0;        // in their file; 0 for filled_in
  std::string theirs;  // "lora_r", "datasets[0].type"
  std::string value;   // as it stands there
  std::string says;    // mapped and filled_in: "lora.rank = 16"; else why, and what to do
};

struct ImportedFile {
  std::string program;  // "Axolotl"
  std::vector<ImportedKey> keys;
  std::string yaml;                                        // the run file
  std::vector<std::pair<std::string, std::string>> given;  // what of it the file itself said, without the program's defaults: key, value

  std::size_t count(ImportedKey::Fate fate) const;
  std::string report() const;  // one line a key, grouped by what became of it
};

// `program`: axolotl, llama-factory, ...; empty: told by the keys. UserError if the file cannot be read or told, or is of another training
// (preferences, rewards, images): then nothing is made of it.
ImportedFile import_file(const std::filesystem::path& path, std::string_view program);

// The program whose file this surely is ("Axolotl"), with the keys that say so; nothing for files of ours and others.
struct ForeignFile {
  std::string program;
  std::vector<std::string> keys;
  std::string why_not;  // its files are not read
};
std::optional<ForeignFile> recognize_foreign(const std::filesystem::path& path);

// docs/coming_from.md, made from the tables.
std::string coming_from_markdown();

}  // namespace lockstep::config
