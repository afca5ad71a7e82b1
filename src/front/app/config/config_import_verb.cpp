// `lockstep config import`: a file of another program as a run file, with a report of every key.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "config/config.h"
#include "config/import/import.h"
#include "front/app/config/config_verb.h"
#include "front/app/flags.h"

namespace lockstep::app {
namespace {

std::string_view name_of(config::ImportedKey::Fate fate) {
  using Fate = config::ImportedKey::Fate;
  switch (fate) {
    case Fate::mapped: return "mapped";
    case Fate::filled_in: return "filled_in";
    case Fate::noted: return "noted";
    case Fate::ignored: return "ignored";
    case Fate::refused: return "refused";
  }
  return "";
}

std::string to_json(const config::ImportedFile& made) {
  nlohmann::ordered_json json = {{"program", made.program}, {"keys", nlohmann::ordered_json::array()}, {"yaml", made.yaml}};
  for (const config::ImportedKey& key : made.keys)
    json["keys"].push_back({{"fate", name_of(key.fate)}, {"theirs", key.theirs}, {"value", key.value}, {"says", key.says}});
  json["given"] = nlohmann::ordered_json::object();
  for (const auto& [key, value] : made.given) json["given"][key] = value;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

int run_config_import(std::span<const std::string> args) {
  std::string file, from, output;
  bool json = false;
  CLI::App app{
      "Makes a run file of a file of Axolotl, LLaMA-Factory, TRL, Hugging Face TrainingArguments, torchtune, accelerate or DeepSpeed "
      "(YAML or JSON).",
      "lockstep config import"};
  app.add_option("file", file, "the file")->required();
  app.add_option("--from", from,
                 "axolotl, llama-factory, llama-factory-v1, trl, unsloth, huggingface, torchtune, accelerate or deepspeed; told by its "
                 "keys if left out");
  auto* written =
      app.add_option("--output", output, "run file to write; if left out it goes to standard output and the report to standard error");
  app.add_flag("--json", json, "one line of JSON instead: what became of each key, and the run file")->excludes(written);
  if (!read_flags(app, args, "config import")) return 0;
  std::error_code error;
  if (!output.empty() && std::filesystem::exists(output, error))
    throw base::usage_error("config", "--output {} exists. Name a new file, or remove it first.", output);

  const config::ImportedFile made = config::import_file(file, from);
  // A script must notice that the run would differ from what the file asked for.
  const auto code = made.count(config::ImportedKey::Fate::refused) > 0 ? base::ExitCode::usage : base::ExitCode::ok;
  if (json) {
    fmt::print("{}\n", to_json(made));
    return static_cast<int>(code);
  }
  fmt::print(output.empty() ? stderr : stdout, "{}", made.report());
  if (output.empty()) {
    fmt::print("{}", made.yaml);
  } else {
    base::write_text_atomically(base::real_files(), output, made.yaml);
    fmt::print("wrote {}; `lockstep config show -f {}` shows the whole of it\n", output, output);
    std::fflush(stdout);
    config::load({.file = output, .environment = {}, .assignments = {}});  // says what still has to be settled
  }
  return static_cast<int>(code);
}

}  // namespace lockstep::app
