// `lockstep config import`: a file of another program as a run file, with a report of every key.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "config/config.h"
#include "config/import/import.h"
#include "front/app/config/config_verb.h"
#include "front/app/flags.h"

namespace lockstep::app {

int run_config_import(std::span<const std::string> args) {
  std::string file, from, output;
  CLI::App app{
      "Makes a run file of a file of Axolotl, LLaMA-Factory, TRL, Hugging Face TrainingArguments, torchtune, accelerate or DeepSpeed "
      "(YAML or JSON).",
      "lockstep config import"};
  app.add_option("file", file, "the file")->required();
  app.add_option(
      "--from", from,
      "axolotl, llama-factory, llama-factory-v1, trl, huggingface, torchtune, accelerate or deepspeed; told by its keys if left out");
  app.add_option("--output", output, "run file to write; if left out it goes to standard output and the report to standard error");
  if (!read_flags(app, args, "config import")) return 0;
  std::error_code error;
  if (!output.empty() && std::filesystem::exists(output, error))
    throw base::usage_error("config", "--output {} exists. Name a new file, or remove it first.", output);

  const config::ImportedFile made = config::import_file(file, from);
  fmt::print(output.empty() ? stderr : stdout, "{}", made.report());
  if (output.empty()) {
    fmt::print("{}", made.yaml);
  } else {
    base::write_text_atomically(base::real_files(), output, made.yaml);
    fmt::print("wrote {}; `lockstep config show -f {}` shows the whole of it\n", output, output);
    std::fflush(stdout);
    config::load({.file = output, .environment = {}, .assignments = {}});  // says what still has to be settled
  }
  // A script must notice that the run would differ from what the file asked for.
  return static_cast<int>(made.count(config::ImportedKey::Fate::refused) > 0 ? base::ExitCode::usage : base::ExitCode::ok);
}

}  // namespace lockstep::app
