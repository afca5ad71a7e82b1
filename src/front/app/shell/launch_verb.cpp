// `lockstep launch config` asks how to train and keeps the answers; `lockstep launch` trains with them.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "config/file.h"
#include "front/app/flags.h"
#include "front/app/verbs.h"
#include "front/job/naming.h"
#include "front/launch/devices/devices.h"
#include "front/launch/libtorch.h"
#include "front/launch/other_launchers.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* help_text = R"(lockstep launch config [--config FILE] [--gpus all|N] [--launcher NAME] [--backend NAME] [--yes]
lockstep launch [--print] [flags of lockstep train]

  lockstep launch config   asks how to train, and keeps the answers
  lockstep launch          trains as answered; flags of `lockstep train` are added, and win

  --config FILE            the run's settings; none: a small model and built-in stories
  --gpus all|N             how many GPUs
  --launcher NAME          lockstep: ranks are started from here; torchrun, srun or mpirun: they start them
  --backend NAME           auto, nccl, gloo or cpu: what carries gradients
  --yes                    asks nothing: what is not given is as before, or as usual
  --print                  prints the command instead of running it

Answers lie in $XDG_CONFIG_HOME/lockstep/launch.json (~/.config/lockstep/launch.json), or where LOCKSTEP_LAUNCH says.
)";

struct Answers {
  std::string config;  // empty: none
  std::string gpus = "all";
  std::string launcher = "lockstep";
  std::string backend = "auto";
};

struct Question {
  const char* flag;
  const char* name;
  std::string Answers::*answer;
  const char* words;
  std::string (*mistake)(const std::string& answer);  // empty: it is good
};

std::string one_of(const std::string& answer, std::initializer_list<const char*> words) {
  for (const char* word : words) {
    if (answer == word) return {};
  }
  return fmt::format("'{}' is none of {}", answer, fmt::join(words, ", "));
}

const Question questions[] = {
    {"--gpus", "gpus", &Answers::gpus, "Use all GPUs? How many otherwise (all, or a number)",
     [](const std::string& answer) -> std::string {
       const auto number = base::parse_integer(answer);
       return answer == "all" || (number && *number > 0) ? "" : fmt::format("'{}' is neither all nor a number of GPUs", answer);
     }},
    {"--config", "config", &Answers::config, "Settings of the run (a YAML or JSON file; none: a small model and built-in stories)",
     [](const std::string& answer) -> std::string {
       std::error_code error;
       return answer.empty() || fs::is_regular_file(config::find_config_file(answer), error) ? ""
                                                                                             : fmt::format("there is no file {}", answer);
     }},
    {"--launcher", "launcher", &Answers::launcher, "Which launcher starts the ranks (lockstep, torchrun, srun or mpirun)",
     [](const std::string& answer) { return one_of(answer, {"lockstep", "torchrun", "srun", "mpirun"}); }},
    {"--backend", "backend", &Answers::backend, "What carries gradients (auto, nccl, gloo or cpu)",
     [](const std::string& answer) { return one_of(answer, {"auto", "nccl", "gloo", "cpu"}); }},
};

fs::path answers_file() {
  if (const char* named = std::getenv("LOCKSTEP_LAUNCH"); named != nullptr && *named != '\0') return named;
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); config != nullptr && *config != '\0')
    return fs::path(config) / "lockstep" / "launch.json";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return fs::path(home) / ".config" / "lockstep" / "launch.json";
  throw base::usage_error("launch", "there is no place for answers: neither HOME nor LOCKSTEP_LAUNCH is set.");
}

std::optional<Answers> read_answers(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) return std::nullopt;
  const auto damaged = [&] { return base::usage_error("launch", "{} is damaged. Answer again: lockstep launch config.", file.string()); };
  Answers answers;
  try {
    const nlohmann::json json = base::parse_json(base::read_text(file));
    for (const Question& question : questions) {
      const auto found = json.find(question.name);
      if (found == json.end()) continue;
      if (!found->is_string()) throw damaged();
      answers.*question.answer = found->get<std::string>();
    }
  } catch (const std::exception&) {
    throw damaged();
  }
  return answers;
}

void write_answers(const fs::path& file, const Answers& answers) {
  Json json;
  for (const Question& question : questions) json[question.name] = answers.*question.answer;
  base::real_files().create_directories(file.parent_path());
  base::write_text_atomically(base::real_files(), file, json.dump(2) + "\n");
}

// Asks until the answer is good; an empty line keeps what stands in brackets. Where nobody answers, nothing is taken for an answer.
void ask(const Question& question, std::string& answer) {
  for (;;) {
    fmt::print("{} [{}]: ", question.words, answer.empty() ? "none" : answer);
    std::fflush(stdout);
    std::string line;
    if (!std::getline(std::cin, line)) {
      std::puts("");
      throw base::usage_error("launch", "the input ended before this was answered. --yes takes what stands in brackets.");
    }
    line = base::trim(line);
    if (line.empty()) return;
    if (line == "none") line.clear();
    if (base::lower(line) == "y" || base::lower(line) == "yes") line = "all";
    const std::string mistake = question.mistake(line);
    if (mistake.empty()) {
      answer = line;
      return;
    }
    fmt::print("  {}.\n", mistake);
  }
}

std::vector<std::string> train_arguments(const Answers& answers) {
  std::vector<std::string> arguments;
  const auto add = [&](const char* flag, const std::string& value) { arguments.insert(arguments.end(), {flag, value}); };
  if (!answers.config.empty()) add("-f", answers.config);
  if (answers.gpus != "all" && answers.launcher == "lockstep") add("--num-gpus", answers.gpus);
  if (answers.backend != "auto") add("--sync-backend", answers.backend);
  return arguments;
}

int number_of_gpus(const Answers& answers) {
  if (const auto number = base::parse_integer(answers.gpus)) return static_cast<int>(*number);
  return std::max(1, static_cast<int>(launch::look_at_machine(launch::process_environment()).visible.size()));
}

// All words of the command, the launcher first where there is one.
std::vector<std::string> command_of(const Answers& answers, std::span<const std::string> more) {
  std::vector<std::string> command;
  const std::string program = launch::own_program().string();
  if (launch::is_other_launcher(answers.launcher))
    command = launch::words_for_launcher(answers.launcher, {.each_machine = number_of_gpus(answers)});
  command.insert(command.end(), {program, "train"});
  const std::vector<std::string> arguments = train_arguments(answers);
  command.insert(command.end(), arguments.begin(), arguments.end());
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

int configure(std::span<const std::string> args) {
  const fs::path file = answers_file();
  Answers answers = read_answers(file).value_or(Answers{});
  bool yes = false;
  std::map<std::string, std::string> given;
  CLI::App app{"Asks how to train, and keeps the answers for `lockstep launch`.", "lockstep launch config"};
  for (const Question& question : questions) app.add_option(question.flag, given[question.flag], question.words);
  app.add_flag("--yes", yes, "asks nothing");
  if (!read_flags(app, args, "launch config")) return 0;
  for (const Question& question : questions) {
    std::string& answer = answers.*question.answer;
    if (app.get_option(question.flag)->count() > 0) {
      answer = given[question.flag];
      if (const std::string mistake = question.mistake(answer); !mistake.empty())
        throw base::usage_error("launch", "{}: {}.", question.flag, mistake);
    } else if (!yes) {
      ask(question, answer);
    }
  }
  std::error_code error;
  if (fs::exists(answers.config, error)) answers.config = fs::absolute(answers.config).string();  // those that come along have names
  write_answers(file, answers);
  fmt::print("kept in {}; `lockstep launch` runs\n  {}\n", file.string(), base::shell_line(command_of(answers, {})));
  return 0;
}

}  // namespace

int run_launch_verb(std::span<const std::string> args) {
  if (!args.empty() && args[0] == "config") return configure(args.subspan(1));
  if (!args.empty() && (args[0] == "--help" || args[0] == "-h")) {
    std::fputs(help_text, stdout);
    return 0;
  }
  const bool print = !args.empty() && args[0] == "--print";
  const std::span<const std::string> more = print ? args.subspan(1) : args;
  const auto answers = read_answers(answers_file());
  if (!answers)
    throw base::usage_error("launch", "nothing was answered yet. `lockstep launch config` asks; plain `lockstep train` needs no answers.");
  std::vector<std::string> command = command_of(*answers, more);
  fmt::print("{}{}\n", print ? "" : "running ", base::shell_line(command));
  std::fflush(stdout);
  if (print) return 0;
  if (answers->launcher == "lockstep") return run_train_verb(std::span(command).subspan(2), command[0]);
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  throw base::machine_error("launch", "cannot start {}: {}. Install it, or choose another: lockstep launch config --launcher lockstep.",
                            command[0], std::strerror(errno));
}

}  // namespace lockstep::app
