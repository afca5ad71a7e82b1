// Lockstep from C++17 on: start a run, follow its metrics, steer it, write text. A thin cover over lockstep_c.h; no LibTorch is linked.
//
//   lockstep::Run run({"-f", "models/nano.yaml", "--max-steps", "20"});
//   while (const auto event = run.next())
//     if (const auto loss = event->number("loss")) std::cout << *event->number("step") << ' ' << *loss << '\n';
//   std::cout << lockstep::generate({"--run", run.folder()}, {"Once upon a time"}).front() << '\n';
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/lockstep_c.h"

#ifndef LOCKSTEP_INSTALLED_PROGRAM  // CMake's package says where it is installed
#define LOCKSTEP_INSTALLED_PROGRAM ""
#endif

namespace lockstep {

using Arguments = std::vector<std::string>;

// A command that failed, in its own words. code(): 2 settings, 3 machine, 4 data, 5 checkpoint, 6 a failed run, 70 a bug.
class Error : public std::runtime_error {
 public:
  Error(const std::string& what, int code) : std::runtime_error(what), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

namespace detail {

struct FreeText {
  void operator()(char* text) const { lockstep_free_text(text); }
  void operator()(char** texts) const { lockstep_free_texts(texts); }
};
using Text = std::unique_ptr<char, FreeText>;

inline std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> result;
  for (const std::string& text : texts) result.push_back(text.c_str());
  result.push_back(nullptr);
  return result;
}

// LOCKSTEP_PROGRAM wins, then the program that was installed with this header, then PATH.
inline const char* program() {
  if (lockstep_abi() != LOCKSTEP_ABI)
    throw Error(std::string("this was compiled for another liblockstep.so than ") + lockstep_version() +
                    ". Compile it again with the headers that were installed with it.",
                2);
  const char* asked = std::getenv("LOCKSTEP_PROGRAM");
  const char* installed = LOCKSTEP_INSTALLED_PROGRAM;
  return asked != nullptr ? asked : *installed != '\0' ? installed : nullptr;
}

}  // namespace detail

// One JSON object that a run told: a step ("step", "loss", "learning_rate", "tokens_per_second"), an evaluation ("eval_loss"), or what
// text("event") names: plan, checkpoint, sample, note, end.
class Event {
 public:
  explicit Event(std::string json) : json_(std::move(json)) {}
  const std::string& json() const { return json_; }
  std::optional<double> number(const std::string& name) const {
    double value = 0;
    return lockstep_number(json_.c_str(), name.c_str(), &value) != 0 ? std::optional<double>(value) : std::nullopt;
  }
  std::optional<std::string> text(const std::string& name) const {
    const detail::Text text(lockstep_text(json_.c_str(), name.c_str()));
    return text ? std::optional<std::string>(text.get()) : std::nullopt;
  }

 private:
  std::string json_;
};

// Any command but train, done when this returns: its standard output. Throws Error.
inline std::string call(const Arguments& arguments) {
  char *output = nullptr, *error = nullptr;
  const int code = lockstep_call(detail::program(), detail::pointers(arguments).data(), &output, &error);
  const detail::Text owned_output(output), owned_error(error);
  if (code != 0) throw Error(error != nullptr && *error != '\0' ? error : output != nullptr ? output : "", code);
  return output != nullptr ? output : "";
}

struct Checkpoint {
  long step = 0;
  std::filesystem::path path;
};

// A run that trains in processes of its own. For one thread at a time. One that is given up while it trains is saved and ended.
class Run {
 public:
  // arguments: behind `lockstep train`.
  explicit Run(Arguments arguments)
      : arguments_(std::move(arguments)), run_(lockstep_start(detail::program(), detail::pointers(arguments_).data())) {
    if (!run_) throw std::bad_alloc();
  }

  // The next event; waits for it. Nothing when the run is over, or timeout_s seconds have passed.
  std::optional<Event> next(double timeout_s = -1) {
    const char* json = lockstep_next(run_.get(), timeout_s);
    return json != nullptr ? std::optional<Event>(json) : std::nullopt;
  }
  bool is_over() const { return lockstep_is_over(run_.get()) != 0; }

  // Empty until it is planned.
  std::string folder() const {
    const char* folder = lockstep_folder(run_.get());
    return folder != nullptr ? folder : "";
  }
  // Whole ones, oldest first.
  std::vector<Checkpoint> checkpoints() const {
    std::vector<Checkpoint> found;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(folder()) / "checkpoints", error)) {
      const std::string name = entry.path().filename().string();
      const bool whole = name.rfind("step-", 0) == 0 && name.find_first_not_of("0123456789", 5) == std::string::npos &&
                         std::filesystem::exists(entry.path() / "manifest.json", error);
      if (whole) found.push_back({std::stol(name.substr(5)), entry.path()});
    }
    std::sort(found.begin(), found.end(), [](const Checkpoint& a, const Checkpoint& b) { return a.step < b.step; });
    return found;
  }

  // save, evaluate, sample or stop: done by all ranks after the same step. Throws Error.
  Event ask(const std::string& wish) const { return Event(call({"ask", folder(), wish, "--json"})); }
  // The first time the ranks finish their step, save and end; the second time they end at once.
  void stop() { lockstep_stop(run_.get()); }
  // Until no process of it is left. Throws Error where it failed, with its report.
  void wait() {
    const int code = lockstep_wait(run_.get());
    if (code != 0) throw Error(lockstep_error(run_.get()), code);
  }
  // Goes on from its newest checkpoint, on any number of ranks: run.resume({"--ranks", "3"}).
  Run resume(const Arguments& more = {}) const {
    const std::filesystem::path folder(this->folder());
    Arguments arguments = arguments_;
    for (const std::string& word : {std::string("--output"), folder.parent_path().string(), std::string("--name"),
                                    folder.filename().string(), std::string("--resume"), std::string("auto")})
      arguments.push_back(word);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }

 private:
  struct Free {
    void operator()(lockstep_run* run) const { lockstep_free(run); }
  };
  Arguments arguments_;
  std::unique_ptr<lockstep_run, Free> run_;
};

// What a model or a run writes after each prompt, over all GPUs. arguments: those of `lockstep generate`: {"--model", folder} or
// {"--run", folder}, and how it chooses its words. Throws Error.
inline std::vector<std::string> generate(const Arguments& arguments, const std::vector<std::string>& prompts) {
  char* error = nullptr;
  const std::unique_ptr<char*, detail::FreeText> texts(
      lockstep_generate(detail::program(), detail::pointers(arguments).data(), detail::pointers(prompts).data(), &error));
  const detail::Text owned(error);
  if (!texts) throw Error(error != nullptr ? error : "", 6);
  std::vector<std::string> result;
  for (char** text = texts.get(); *text != nullptr; ++text) result.emplace_back(*text);
  return result;
}

}  // namespace lockstep
