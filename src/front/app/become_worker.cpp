// Finds the worker and LibTorch and replaces this process.
#include "front/app/become_worker.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "front/launch/libtorch.h"
#include "journal/run_folder.h"

namespace lockstep::app {

namespace fs = std::filesystem;

void expect_run_folder(const std::string& verb, const std::string& run) {
  std::error_code error;
  if (!fs::is_directory(run, error)) throw base::usage_error(verb, "--run {}: there is no such folder.", run);
  if (!fs::exists(journal::RunFolder{run}.config(), error)) {
    throw base::usage_error(
        verb, "--run {}: not a run folder (it holds no config.yaml). Give the folder that `lockstep train` named at its end.", run);
  }
}

void become_worker(const std::string& verb, std::vector<std::string> arguments, launch::Environment environment) {
  const fs::path program = launch::own_program();
  const fs::path worker = launch::find_worker(environment, program);
  environment["LD_LIBRARY_PATH"] = launch::library_path(launch::find_libtorch(environment, program), environment);
  for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCKSTEP_PAGE"})
    environment.erase(name);
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
