// Finds the worker and LibTorch and replaces this process.
#include "front/app/become_worker.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file/refusal.h"
#include "front/launch/libtorch.h"
#include "journal/run_folder.h"

namespace lockstep::app {

namespace fs = std::filesystem;

void expect_run_folder(const std::string& verb, const std::string& run) {
  std::error_code error;
  base::refuse_if_hidden(run);
  if (!fs::is_directory(run, error)) throw base::usage_error(verb, "--run {}: there is no such folder.", run);
  if (!fs::exists(journal::RunFolder{run}.config(), error)) {
    throw base::usage_error(
        verb, "--run {}: not a run folder (it holds no config.yaml). Give the folder that `lockstep train` named at its end.", run);
  }
}

void become_worker(const std::string& verb, std::vector<std::string> arguments, launch::Environment environment) {
  const launch::OwnWorker own = launch::own_worker(environment);
  const fs::path& worker = own.program;
  environment = launch::without_ranks(std::move(environment), own);
  arguments.insert(arguments.begin(), worker.string());
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  std::vector<char*> argument_list, variable_list;
  for (auto& argument : arguments) argument_list.push_back(argument.data());
  for (auto& variable : variables) variable_list.push_back(variable.data());
  argument_list.push_back(nullptr);
  variable_list.push_back(nullptr);
  ::execve(worker.c_str(), argument_list.data(), variable_list.data());
  throw base::machine_error(verb, "cannot start {}: {}.", worker.string(), std::strerror(errno));
}

}  // namespace lockstep::app
