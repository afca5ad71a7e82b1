// `lockstep generate`: text from a run's checkpoint, by a worker that takes this process's place.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "front/app/flags.h"
#include "front/app/verbs.h"
#include "front/launch/devices.h"
#include "front/launch/libtorch.h"
#include "record/run_folder.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

struct Wish {
  std::string run, checkpoint, prompt = "Once upon a time", device = "auto";
  std::optional<long> max_tokens, top_k, seed;
  std::optional<double> temperature;
};

void describe(CLI::App& app, Wish& wish) {
  app.add_option("--run", wish.run, "run folder, such as runs/nano-20260131-120000")->required();
  app.add_option("--prompt", wish.prompt, "text to go on from")->capture_default_str();
  app.add_option("--checkpoint", wish.checkpoint, "a checkpoint's folder; the newest whole one of the run if left out");
  app.add_option("--max-tokens", wish.max_tokens, "tokens to write")->check(CLI::PositiveNumber);
  app.add_option("--temperature", wish.temperature, "0 takes the likeliest token")->check(CLI::NonNegativeNumber);
  app.add_option("--top-k", wish.top_k, "draw among the k likeliest tokens; 0: among all")->check(CLI::NonNegativeNumber);
  app.add_option("--seed", wish.seed, "the same seed writes the same text");
  app.add_option("--device", wish.device, "auto, cpu, cuda or cuda:N")->capture_default_str();
}

std::string device_for(const std::string& asked, const launch::Environment& environment) {
  if (asked == "cpu") return "cpu";
  const launch::Machine machine = launch::look_at_machine(environment);
  if (asked == "auto") return machine.visible.empty() ? "cpu" : "cuda:0";
  const auto index = asked == "cuda"              ? std::optional<std::int64_t>(0)
                     : asked.starts_with("cuda:") ? base::parse_integer(asked.substr(5))
                                                  : std::nullopt;
  if (!index) throw base::usage_error("generate", "--device {} is not one of auto, cpu, cuda, cuda:N.", asked);
  if (*index < 0 || *index >= static_cast<std::int64_t>(machine.visible.size())) {
    throw base::machine_error(
        "generate", "--device {}: there is no such GPU. {}", asked,
        machine.visible.empty() ? "There is none; use --device cpu." : "GPUs there are:\n" + launch::list_gpus(machine.visible));
  }
  return fmt::format("cuda:{}", *index);
}

std::vector<std::string> worker_arguments(const Wish& wish) {
  std::vector<std::string> arguments = {"generate", "--run", wish.run, "--prompt", wish.prompt};
  const auto add = [&](const char* name, const auto& value) {
    if (value) arguments.insert(arguments.end(), {name, fmt::format("{}", *value)});
  };
  if (!wish.checkpoint.empty()) arguments.insert(arguments.end(), {"--checkpoint", wish.checkpoint});
  add("--max-tokens", wish.max_tokens);
  add("--temperature", wish.temperature);
  add("--top-k", wish.top_k);
  add("--seed", wish.seed);
  return arguments;
}

}  // namespace

int run_generate_verb(std::span<const std::string> args) {
  Wish wish;
  CLI::App app{"Writes text from a run's newest checkpoint.", "lockstep generate"};
  describe(app, wish);
  if (!read_flags(app, args, "generate")) return 0;
  std::error_code error;
  if (!fs::is_directory(wish.run, error)) throw base::usage_error("generate", "--run {}: there is no such folder.", wish.run);
  if (!fs::exists(record::RunFolder{wish.run}.config(), error)) {
    throw base::usage_error("generate",
                            "--run {}: not a run folder (it holds no config.yaml). Give the folder that `lockstep train` named at its end.",
                            wish.run);
  }

  launch::Environment environment = launch::process_environment();
  const fs::path program = launch::own_program();
  const fs::path worker = launch::find_worker(environment, program);
  environment["LD_LIBRARY_PATH"] = launch::library_path(launch::find_libtorch(environment, program), environment);
  environment["LOCKSTEP_DEVICE"] = device_for(wish.device, environment);
  for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCKSTEP_PAGE"})
    environment.erase(name);

  std::vector<std::string> words = worker_arguments(wish);
  words.insert(words.begin(), worker.string());
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  std::vector<char*> argument_list, variable_list;
  for (auto& word : words) argument_list.push_back(word.data());
  for (auto& variable : variables) variable_list.push_back(variable.data());
  argument_list.push_back(nullptr);
  variable_list.push_back(nullptr);
  ::execve(worker.c_str(), argument_list.data(), variable_list.data());
  throw base::machine_error("generate", "cannot start {}: {}.", worker.string(), std::strerror(errno));
}

}  // namespace lockstep::app
