// `lockstep generate`: text from a run's checkpoint, by a worker that takes this process's place.
#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "front/app/become_worker.h"
#include "front/app/flags.h"
#include "front/app/verbs.h"
#include "front/launch/devices.h"

namespace lockstep::app {
namespace {

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
  expect_run_folder("generate", wish.run);
  launch::Environment environment = launch::process_environment();
  environment["LOCKSTEP_DEVICE"] = device_for(wish.device, environment);
  become_worker("generate", worker_arguments(wish), std::move(environment));
}

}  // namespace lockstep::app
