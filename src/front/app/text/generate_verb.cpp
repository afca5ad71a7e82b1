// `lockstep generate`: text from a model; one prompt by a worker that takes this process's place, a file of prompts by all ranks.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "front/app/become_worker.h"
#include "front/app/text/generate_file.h"
#include "front/app/verbs.h"

namespace lockstep::app {
namespace {

constexpr const char* default_prompt = "Once upon a time";

struct Wish : TextWish {
  std::optional<std::string> prompt, chat;
  FileWish files;
  bool stream = true;
};

void describe_all(CLI::App& app, Wish& wish) {
  auto* prompt = app.add_option("--prompt", wish.prompt, "text to go on from");
  auto* chat = app.add_option("--chat", wish.chat, "what a user says; answered by way of the model's chat template");
  auto* file = app.add_option("--file", wish.files.file, "JSON lines of {\"prompt\": ...} or {\"messages\": [...]}, spread over all GPUs");
  for (auto* other : {chat, file}) prompt->excludes(other);
  chat->excludes(file);
  auto* output = app.add_option("--output", wish.files.output, "of --file: the same lines, each with its completion");
  output->needs(file);
  file->needs(output);
  app.add_option("--ranks", wish.files.ranks, "of --file and --shard: ranks; one a GPU, or one on a CPU, if left out")
      ->check(CLI::Range(1, 1 << 12));
  app.add_flag("--shard", wish.files.shard,
               "ranks hold the model between them, for one that is larger than a GPU; the text comes when it is whole");
  app.add_option("--batch-size", wish.files.batch_size, "of --file: prompts that a rank answers at once")
      ->needs(file)
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 16));
  app.add_flag("--stream,!--no-stream", wish.stream, "show the text while it is written (the default), or when it is whole");
  describe(app, wish);
}

// As a line of a file says it.
nlohmann::ordered_json line_of(const Wish& wish) {
  if (!wish.chat) return {{"prompt", wish.prompt.value_or(default_prompt)}};
  return {{"messages", {{{"role", "user"}, {"content", *wish.chat}}}}};
}

std::vector<std::string> worker_arguments(const Wish& wish) {
  std::vector<std::string> arguments = {"generate"};
  const auto add = [&](const std::vector<std::string>& more) { arguments.insert(arguments.end(), more.begin(), more.end()); };
  add(model_arguments(wish));
  if (wish.chat) {
    add({"--chat", *wish.chat});
  } else {
    add({"--prompt", wish.prompt.value_or(default_prompt)});
  }
  add(sampling_arguments(wish));
  if (!wish.stream) add({"--stream", "0"});
  return arguments;
}

}  // namespace

int run_generate_verb(std::span<const std::string> args) {
  Wish wish;
  CLI::App app{"Writes text from a model folder or from a run's newest checkpoint.", "lockstep generate"};
  describe_all(app, wish);
  if (!read_flags(app, args, "generate")) return 0;
  check(wish, "generate");
  if (!wish.files.file.empty()) return generate_file(wish, wish.files);
  if (wish.files.ranks && !wish.files.shard)
    throw base::usage_error("generate", "--ranks goes with --file, whose prompts ranks share, or with --shard.");
  if (!wish.model.empty() && !wish.prompt && !wish.chat)
    throw base::usage_error("generate", "what to go on from is not said. Give --prompt TEXT, --chat TEXT or --file FILE.");
  if (wish.files.shard) return generate_together(wish, wish.files, line_of(wish));
  launch::Environment environment = launch::process_environment();
  environment["LOCKSTEP_DEVICE"] = device_for(wish.device, "generate", environment);
  become_worker("generate", worker_arguments(wish), std::move(environment));
}

}  // namespace lockstep::app
