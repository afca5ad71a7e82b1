// Files of Axolotl, LLaMA-Factory and Hugging Face TrainingArguments as a run file of ours, with what became of every key.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::config {

// One key of the file, or a default of the other program that differs from ours.
struct ImportedKey {
  enum class Fate { mapped, filled_in, ignored, refused };
  Fate fate;
  int line = 0;        // in their file; 0 for filled_in
  std::string theirs;  // "lora_r", "datasets[0].type"
  std::string value;   // as it stands there
  std::string says;    // mapped and filled_in: "lora.rank = 16"; else why, and what to do
};

struct ImportedFile {
  std::string program;  // "Axolotl"
  std::vector<ImportedKey> keys;
  std::string yaml;  // the run file

  std::size_t count(ImportedKey::Fate fate) const;
  std::string report() const;  // one line a key, grouped by what became of it
};

// `program`: axolotl, llama-factory or huggingface; empty: told by the keys. UserError if the file cannot be read or told.
ImportedFile import_file(const std::filesystem::path& path, std::string_view program);

}  // namespace lockstep::config
