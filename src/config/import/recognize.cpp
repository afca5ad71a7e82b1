// Each program has keys that tell its files; programs that share most of theirs are told apart by the rest.
#include "config/import/recognize.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "config/file.h"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view words =
    "axolotl, llama-factory, llama-factory-v1, trl, unsloth, huggingface, torchtune, accelerate or deepspeed";

bool has(const YAML::Node& file, std::string_view key) { return bool(file[std::string(key)]); }

std::vector<std::string> signs_in(const YAML::Node& file, const ImportProgram& program) {
  std::vector<std::string> found;
  for (const std::string_view sign : program.signs) {
    if (has(file, sign)) found.emplace_back(sign);
  }
  return found;
}

// torchtune writes the class of each part into it.
bool has_components(const YAML::Node& file) {
  for (const auto& item : file) {
    if (item.second.IsMap() && item.second["_component_"]) return true;
  }
  return false;
}

// Programs whose files share keys with those that are read, and are none of them.
struct OtherProgram {
  std::string_view name, why;
  std::size_t enough;  // so many of its keys tell it
  std::vector<std::string_view> keys;
};

const OtherProgram* other_program(const YAML::Node& file) {
  constexpr std::string_view no_table = "files of this program are not read. Write a run file by hand: models/ has some to start from";
  static const std::array<OtherProgram, 5> programs = {{
      {"OneTrainer",
       no_media,
       3,
       {"training_method", "base_model_name", "output_model_destination", "output_model_format", "concepts", "concept_file_name",
        "train_dtype", "text_encoder", "vae", "unet", "prior", "workspace_dir"}},
      {"kohya's sd-scripts",
       no_media,
       2,
       {"network_dim", "network_alpha", "network_module", "network_args", "train_data_dir", "reg_data_dir", "max_train_steps",
        "max_train_epochs", "max_resolution", "resolution", "unet_lr", "text_encoder_lr", "clip_skip", "caption_extension",
        "max_token_length", "enable_bucket", "min_snr_gamma"}},
      {"mlx-lm",
       no_table,
       3,
       {"lora_parameters", "iters", "steps_per_report", "steps_per_eval", "val_batches", "adapter_path", "save_every", "fine_tune_type",
        "grad_checkpoint", "mask_prompt", "test_batches", "resume_adapter_file"}},
      {"LitGPT",
       no_table,
       3,
       {"checkpoint_dir", "out_dir", "lora_query", "lora_key", "lora_value", "lora_projection", "lora_mlp", "lora_head", "logger_name",
        "tokenizer_dir"}},
      {"ms-swift", no_table, 1, {"train_type", "tuner_type", "tuner_backend", "rlhf_type", "swift_version", "agent_template"}},
  }};
  for (const OtherProgram& program : programs) {
    const auto found = std::count_if(program.keys.begin(), program.keys.end(), [&](std::string_view key) { return has(file, key); });
    if (static_cast<std::size_t>(found) >= program.enough) return &program;
  }
  return nullptr;
}

const ImportProgram* sure(const YAML::Node& file) {
  if (has_components(file)) return &torchtune();
  // These two say how ranks are started or how DeepSpeed works, and share hardly a key with the rest.
  if (signs_in(file, accelerate()).size() >= 2) return &accelerate();
  if (signs_in(file, deepspeed()).size() >= 2 || (has(file, "zero_optimization") && !has(file, "output_dir"))) return &deepspeed();
  if (has(file, "model") && signs_in(file, llama_factory_v1()).size() >= 2) return &llama_factory_v1();
  return nullptr;
}

// TrainingArguments have no key of their own: files of the others hold them as well, beside keys that tell them.
const ImportProgram* likely(const YAML::Node& file) {
  const ImportProgram* best = nullptr;
  std::size_t most = 0;
  for (const ImportProgram* program : {&axolotl(), &llama_factory(), &trl()}) {
    const std::size_t here = signs_in(file, *program).size();
    if (here > most) {
      most = here;
      best = program;
    }
  }
  if (best == nullptr && !signs_in(file, hugging_face()).empty()) best = &hugging_face();
  return best;
}

// A file that shares a few keys with a program is not its file.
bool knows_most_of(const ImportProgram& program, const YAML::Node& file) {
  std::size_t known = 0;
  for (const auto& item : file) known += import_row(program.rows, item.first.Scalar()) != nullptr ? 1 : 0;
  return 2 * known >= file.size();
}

}  // namespace

std::span<const ImportProgram* const> import_programs() {
  static const std::array<const ImportProgram*, 9> all = {&axolotl(),      &llama_factory(), &llama_factory_v1(), &trl(),      &unsloth(),
                                                          &hugging_face(), &torchtune(),     &accelerate(),       &deepspeed()};
  return all;
}

YAML::Node parse_foreign(const fs::path& path) {
  read_config_file(path);  // says what is wrong with a file that cannot be read, in our words
  std::string text = base::read_text(path);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != text.npos && text[first] == '{') std::replace(text.begin(), text.end(), '\t', ' ');
  YAML::Node file = YAML::Load(text);
  if (!file.IsMap() || file.size() == 0) throw base::usage_error("config", "{} holds no settings.", path.string());
  std::map<std::string, int> seen;
  for (const auto& item : file) {
    const int line = item.first.Mark().line + 1;
    if (!item.first.IsScalar()) throw base::usage_error("config", "{}:{}: a key must be a plain name.", path.string(), line);
    const std::string key = item.first.Scalar();
    if (key == "<<") throw base::usage_error("config", "{}:{}: merge keys (<<) are not read. Write the values out.", path.string(), line);
    if (const auto [before, fresh] = seen.emplace(key, line); !fresh) {
      throw base::usage_error("config", "{}: {} is set twice, on lines {} and {}. Keep one.", path.string(), key, before->second, line);
    }
  }
  return file;
}

const ImportProgram& told_by_keys(const YAML::Node& file, const std::string& name) {
  if (const OtherProgram* other = other_program(file))
    throw base::usage_error("config", "{} is a file of {}: {}. Nothing was written.", name, other->name, other->why);
  if (const ImportProgram* program = sure(file)) return *program;
  if (const ImportProgram* program = likely(file)) {
    if (knows_most_of(*program, file)) return *program;
    throw base::usage_error(
        "config",
        "{} has keys of {}, but most of its {} keys are none of that program's: it is taken for no program's file. If it is "
        "one of {} after all, say so with --from {}.",
        name, program->name, file.size(), program->name, program->word);
  }
  throw base::usage_error(
      "config",
      "{} has none of the keys that tell Axolotl, LLaMA-Factory, TRL, Hugging Face, torchtune, accelerate and DeepSpeed "
      "files apart. Say which it is with --from {}.",
      name, words);
}

const ImportProgram& named_program(std::string_view word) {
  const auto plain = [](std::string_view text) {
    std::string result = base::lower(text);
    std::erase_if(result, [](char c) { return c == '-' || c == '_'; });
    return result;
  };
  for (const ImportProgram* program : import_programs()) {
    if (plain(word) == plain(program->word) || (plain(word) == "hf" && program == &hugging_face())) return *program;
  }
  throw base::usage_error("config", "--from {} is not one of {}.", word, words);
}

std::optional<ForeignFile> recognize_foreign(const fs::path& path) {
  constexpr std::size_t enough = 2, most_named = 3;
  YAML::Node file;
  try {
    file = parse_foreign(path);
  } catch (const base::UserError&) {
    return std::nullopt;
  }
  if (const OtherProgram* other = other_program(file)) return ForeignFile{std::string(other->name), {}, std::string(other->why)};
  const ImportProgram* program = sure(file);
  if (program == nullptr) program = likely(file);
  if (program == nullptr || !knows_most_of(*program, file)) return std::nullopt;
  std::vector<std::string> keys = signs_in(file, *program);
  if (program == &torchtune()) keys.insert(keys.begin(), "_component_");
  if (keys.size() < enough) return std::nullopt;
  keys.resize(std::min(keys.size(), most_named));
  return ForeignFile{std::string(program->name), std::move(keys), {}};
}

}  // namespace lockstep::config
