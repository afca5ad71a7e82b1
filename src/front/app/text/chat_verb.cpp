// `lockstep chat`: a conversation in the terminal; the model stays loaded and remembers what was said.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "front/app/become_worker.h"
#include "front/app/text/chat_worker.h"
#include "front/app/text/text_flags.h"
#include "front/app/verbs.h"
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

}  // namespace

int run_chat_verb(std::span<const std::string> args) {
  TextWish wish;
  CLI::App app{"A conversation with a model in the terminal.", "lockstep chat"};
  bool json = false;
  describe(app, wish);
  app.add_flag("--json", json,
               "for programs: each line of input is {\"messages\": [...]}, the answer comes as {\"text\"} pieces and a last {\"finish\"}");
  if (!read_flags(app, args, "chat")) return 0;
  check(wish, "chat");
  if (!wish.max_tokens) wish.max_tokens = 1024;
  launch::Environment environment = launch::process_environment();
  environment["LOCKSTEP_DEVICE"] = device_for(wish.device, "chat", environment);
  std::vector<std::string> arguments = model_arguments(wish);
  for (const std::string& word : sampling_arguments(wish)) arguments.push_back(word);
  if (json) {
    arguments.insert(arguments.begin(), "chat");
    become_worker("chat", std::move(arguments), std::move(environment));
  }
  base::SignalFlag interrupt(SIGINT, base::Calls::are_interrupted);
  ChatWorker worker(std::move(arguments), std::move(environment), interrupt);
  Conversation(worker, interrupt, wish.system).run();
  return 0;
}

}  // namespace lockstep::app
