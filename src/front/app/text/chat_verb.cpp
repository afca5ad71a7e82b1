// `lockstep chat`: a conversation in the terminal; the model stays loaded and remembers what was said.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "front/app/become_worker.h"
#include "front/app/text/chat_worker.h"
#include "front/app/text/text_ranks.h"
#include "front/app/verbs.h"
#include "front/launch/libtorch.h"
#include "text/terminal.h"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* commands = "/reset forgets the conversation, /system TEXT sets the system message, /exit or Ctrl-D leaves";

class Conversation {
 public:
  Conversation(ChatWorker& worker, base::SignalFlag& interrupt, std::string system)
      : worker_(worker),
        interrupt_(interrupt),
        system_(std::move(system)),
        typed_(::isatty(STDIN_FILENO) == 1),
        shown_(::isatty(STDOUT_FILENO) == 1) {}

  void run() {
    if (typed_) fmt::print(stderr, "{}; Ctrl-C stops an answer.\n", commands);
    LineReader input(STDIN_FILENO);
    for (std::string line;;) {
      if (typed_) show("> ");
      switch (input.next(line)) {
        case LineReader::Got::end:
          if (typed_) show("\n");
          return;
        case LineReader::Got::interrupt:
          interrupt_.take();
          if (typed_) fmt::print(stderr, "\n{}\n", commands);
          continue;
        case LineReader::Got::line: break;
      }
      line = base::trim(line);
      if (line.empty()) continue;
      if (!line.starts_with('/')) {
        answer(line);
      } else if (!obey(line)) {
        return;
      }
    }
  }

 private:
  // False where it leaves.
  bool obey(const std::string& line) {
    const auto space = line.find(' ');
    const std::string word = line.substr(0, space), rest = space == std::string::npos ? "" : base::trim(line.substr(space));
    if (word == "/exit" || word == "/quit") return false;
    if (word == "/reset") {
      messages_.clear();
    } else if (word == "/system") {
      system_ = rest;
      messages_.clear();
    } else {
      fmt::print(stderr, "{} is not a command: {}.\n", word, commands);
    }
    return true;
  }

  void answer(const std::string& said) {
    Json messages = Json::array();
    if (!system_.empty()) messages.push_back({{"role", "system"}, {"content", system_}});
    for (const Json& message : messages_) messages.push_back(message);
    const Json question = {{"role", "user"}, {"content", said}};
    messages.push_back(question);
    const auto got = worker_.ask(messages, [&](const std::string& piece) { show(shown_ ? text::harmless(piece) : piece); });
    if (got.finish == "error") {
      fmt::print(stderr, "{}\n", got.error);
      return;
    }
    show("\n");
    if (got.finish == "context") fmt::print(stderr, "[chat] the model's context is full; /reset starts anew.\n");
    messages_.push_back(question);
    messages_.push_back({{"role", "assistant"}, {"content", got.text}});
  }

  static void show(const std::string& piece) {
    std::fputs(piece.c_str(), stdout);
    std::fflush(stdout);
  }

  ChatWorker& worker_;
  base::SignalFlag& interrupt_;
  std::string system_;
  const bool typed_, shown_;
  std::vector<Json> messages_;
};

// The ranks' launcher is a process of its own, so that this one is free for the terminal.
launch::Command this_program_as_json(std::span<const std::string> args) {
  launch::Command command{.program = launch::own_program(), .arguments = {"chat", "--json"}, .environment = launch::process_environment()};
  command.arguments.insert(command.arguments.end(), args.begin(), args.end());
  return command;
}

launch::Command worker_for(const TextWish& wish) {
  launch::Environment environment = launch::process_environment();
  environment["LOCKSTEP_DEVICE"] = device_for(wish.device, "chat", environment);
  const launch::OwnWorker worker = launch::own_worker(environment);
  launch::Command command{
      .program = worker.program, .arguments = {"chat"}, .environment = launch::without_ranks(std::move(environment), worker)};
  for (const auto& words : {model_arguments(wish), sampling_arguments(wish)})
    command.arguments.insert(command.arguments.end(), words.begin(), words.end());
  return command;
}

}  // namespace

int run_chat_verb(std::span<const std::string> args) {
  TextWish wish;
  RankWish ranks;
  CLI::App app{"A conversation with a model in the terminal.", "lockstep chat"};
  bool json = false;
  describe(app, wish);
  auto* shard = app.add_flag("--shard", ranks.shard, "ranks hold the model between them, for one that is larger than a GPU");
  app.add_option("--ranks", ranks.ranks, "of --shard: ranks; one a GPU, or two on a CPU, if left out")
      ->needs(shard)
      ->check(CLI::Range(1, 1 << 12));
  app.add_flag("--json", json,
               "for programs: each line of input is {\"messages\": [...]}, the answer comes as {\"text\"} pieces and a last {\"finish\"}");
  if (!read_flags(app, args, "chat")) return 0;
  check(wish, "chat");
  if (!wish.max_tokens) wish.max_tokens = 1024;
  if (json && ranks.shard) {
    // A rank may not read a terminal: it leads a process group of its own.
    if (::isatty(STDIN_FILENO) == 1)
      throw base::usage_error("chat", "--json with --shard reads lines from a pipe or a file, not from a terminal. Leave out --json.");
    return chat_together(wish, ranks);
  }
  launch::Command command = ranks.shard ? this_program_as_json(args) : worker_for(wish);
  if (json) become_worker("chat", std::move(command.arguments), std::move(command.environment));
  base::SignalFlag interrupt(SIGINT, base::Calls::are_interrupted);
  ChatWorker worker(std::move(command), interrupt);
  Conversation(worker, interrupt, wish.system).run();
  return 0;
}

}  // namespace lockstep::app
