// Flags to worker arguments; mistakes are refused before anything starts.
#include "front/app/text/text_flags.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/refusal.h"
#include "base/text.h"
#include "config/config.h"
#include "config/model_folder.h"
#include "front/app/become_worker.h"
#include "front/launch/devices/devices.h"

namespace lockstep::app {

namespace fs = std::filesystem;

void describe(CLI::App& app, TextWish& wish) {
  app.add_option("--model", wish.model, "Hugging Face model folder");
  app.add_option("--adapter", wish.adapter, "PEFT folder with an adapter for the model");
  app.add_option("--run", wish.run, "instead of --model: run folder, such as runs/nano-20260131-120000");
  app.add_option("--checkpoint", wish.checkpoint, "a checkpoint's folder; the newest whole one of the run if left out");
  app.add_option("--system", wish.system, "system message of a chat");
  app.add_option("--max-tokens", wish.max_tokens, "tokens to write at most")->check(CLI::PositiveNumber);
  app.add_option("--temperature", wish.temperature, "0 takes the likeliest token; 0.7 if left out")->check(CLI::NonNegativeNumber);
  app.add_option("--top-k", wish.top_k, "draw among the k likeliest tokens; 0: among all")->check(CLI::NonNegativeNumber);
  app.add_option("--top-p", wish.top_p, "draw among the likeliest tokens that together hold this share")->check(CLI::Range(1e-9, 1.0));
  app.add_option("--min-p", wish.min_p, "draw among tokens at least this likely, relative to the likeliest")->check(CLI::Range(0.0, 1.0));
  app.add_option("--repetition-penalty", wish.repetition_penalty, "above 1 makes tokens that were seen less likely")
      ->check(CLI::PositiveNumber);
  app.add_option("--stop", wish.stops, "the text ends before this; may be given several times")->allow_extra_args(false);
  app.add_option("--seed", wish.seed, "the same seed writes the same text");
  app.add_option("--device", wish.device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--dtype", wish.dtype, "bf16, f16 or f32; as the model is stored if left out");
  app.add_flag("--load-in-4bit", wish.load_in_4bit, "hold the model's matrices as NF4");
  app.add_flag("--load-in-8bit", wish.load_in_8bit, "hold the model's matrices as blockwise int8");
}

void check(const TextWish& wish, const std::string& verb) {
  if (wish.run.empty() == wish.model.empty()) {
    throw base::usage_error(verb, "{}. Give --model DIR (a Hugging Face folder) or --run DIR (a folder that `lockstep train` made).",
                            wish.run.empty() ? "which model is not said" : "--run and --model are two models");
  }
  for (const auto& stop : wish.stops)
    if (stop.empty()) throw base::usage_error(verb, "--stop is empty: every text would end at once.");
  if (!wish.run.empty()) {
    expect_run_folder(verb, wish.run);
    for (const auto& [given, flag] : {std::pair{!wish.adapter.empty(), "--adapter"},
                                      {!wish.dtype.empty(), "--dtype"},
                                      {wish.load_in_4bit, "--load-in-4bit"},
                                      {wish.load_in_8bit, "--load-in-8bit"}})
      if (given) throw base::usage_error(verb, "{} goes with --model; a run knows its own.", flag);
    return;
  }
  std::error_code error;
  if (!wish.checkpoint.empty()) throw base::usage_error(verb, "--checkpoint goes with --run.");
  base::refuse_if_hidden(wish.model);
  if (!fs::is_directory(wish.model, error)) throw base::usage_error(verb, "--model {}: there is no such folder.", wish.model);
  if (!wish.adapter.empty() && !fs::exists(fs::path(wish.adapter) / "adapter_config.json", error)) {
    throw base::usage_error(verb, "--adapter {}: not a PEFT folder (it holds no adapter_config.json).", wish.adapter);
  }
  if (wish.load_in_4bit && wish.load_in_8bit) throw base::usage_error(verb, "--load-in-4bit and --load-in-8bit exclude each other.");
  config::read_model_folder(wish.model);  // refuses what cannot be read
}

std::vector<std::string> model_arguments(const TextWish& wish) {
  std::vector<std::string> arguments;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {name, value});
  };
  add("--run", wish.run);
  add("--checkpoint", wish.checkpoint);
  add("--model", wish.model);
  add("--adapter", wish.adapter);
  add("--dtype", wish.dtype);
  if (wish.load_in_4bit) add("--load-in-4bit", "1");
  if (wish.load_in_8bit) add("--load-in-8bit", "1");
  add("--system", wish.system);
  return arguments;
}

std::vector<std::string> sampling_arguments(const TextWish& wish) {
  std::vector<std::string> arguments;
  const auto add = [&](const char* name, const auto& value) {
    if (value) arguments.insert(arguments.end(), {name, fmt::format("{}", *value)});
  };
  add("--max-tokens", wish.max_tokens);
  add("--temperature", wish.temperature);
  add("--top-k", wish.top_k);
  add("--top-p", wish.top_p);
  add("--min-p", wish.min_p);
  add("--repetition-penalty", wish.repetition_penalty);
  add("--seed", wish.seed);
  if (!wish.stops.empty()) arguments.insert(arguments.end(), {"--stop", nlohmann::json(wish.stops).dump()});
  return arguments;
}

std::string device_for(const std::string& asked, const std::string& verb, const launch::Environment& environment) {
  if (asked == "cpu") return "cpu";
  const launch::Machine machine = launch::look_at_machine(environment);
  if (asked == "auto") return machine.visible.empty() ? "cpu" : "cuda:0";
  const auto index = asked == "cuda"              ? std::optional<std::int64_t>(0)
                     : asked.starts_with("cuda:") ? base::parse_integer(asked.substr(5))
                                                  : std::nullopt;
  if (!index) throw base::usage_error(verb, "--device {} is not one of auto, cpu, cuda, cuda:N.", asked);
  if (*index < 0 || *index >= static_cast<std::int64_t>(machine.visible.size())) {
    throw base::machine_error(
        verb, "--device {}: there is no such GPU. {}", asked,
        machine.visible.empty() ? "There is none; use --device cpu." : "GPUs there are:\n" + launch::list_gpus(machine.visible));
  }
  return fmt::format("cuda:{}", *index);
}

}  // namespace lockstep::app
