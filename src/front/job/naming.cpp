// Names by time, by launcher, or by what is to be resumed.
#include "front/job/naming.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "journal/owner.h"
#include "journal/run_folder.h"

namespace lockstep::job {
namespace {

namespace fs = std::filesystem;

bool has_checkpoints(const fs::path& run) { return !journal::list_checkpoints(journal::RunFolder{run}.checkpoints()).empty(); }

std::optional<std::string> newest_run_with_checkpoint(const config::RunConfig& config) {
  std::optional<std::string> newest;
  fs::file_time_type newest_time;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(config.output, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(config.model.name + "-") || !has_checkpoints(entry.path())) continue;
    const auto time = fs::last_write_time(journal::RunFolder{entry.path()}.checkpoints(), error);
    if (!newest || time > newest_time) {
      newest = name;
      newest_time = time;
    }
  }
  return newest;
}

// Whether one of the flags (in either spelling) or keys was given, and how many arguments it took.
bool is_flag(const std::string& argument, std::initializer_list<std::string_view> names) {
  const std::string name = argument.substr(0, argument.find('='));
  return std::any_of(names.begin(), names.end(), [&](std::string_view candidate) { return name == candidate; });
}

bool names_its_run(std::span<const std::string> args) {
  return std::any_of(args.begin(), args.end(), [](const std::string& arg) { return is_flag(arg, {"--name", "name", "run_name"}); });
}

}  // namespace

fs::path checkpoints_of(const config::RunConfig& config) {
  return config.trainer.checkpoint_dir.empty() ? journal::RunFolder{fs::path(config.output) / config.name}.checkpoints()
                                               : fs::path(config.trainer.checkpoint_dir);
}

void refuse_to_overwrite(const config::RunConfig& config) {
  if (!config.checkpoint.resume.empty()) return;
  const fs::path folder = fs::path(config.output) / config.name;
  const fs::path checkpoints = checkpoints_of(config);
  const bool elsewhere = !config.trainer.checkpoint_dir.empty() && !journal::list_checkpoints(checkpoints).empty();
  if (elsewhere) {
    const auto owner = journal::owner_of(checkpoints);
    if (owner && owner->run.filename() != config.name) return;  // another run's, which is refused by its name
  }
  if (!elsewhere && !has_checkpoints(folder)) return;
  throw base::usage_error("launch", "{} already holds a run with checkpoints{}. Go on with it (--resume auto), or choose another {}.",
                          folder.string(), elsewhere ? fmt::format(" (in {})", checkpoints.string()) : "",
                          elsewhere ? "--name and trainer.checkpoint_dir" : "--name");
}

RunName name_run(const config::RunConfig& config, const std::optional<std::string>& label) {
  const bool resumes = config.checkpoint.resume == "auto";
  if (!config.name.empty()) {
    refuse_to_overwrite(config);
    return {config.name, ""};
  }
  if (resumes && !config.trainer.checkpoint_dir.empty()) {
    const auto owner = journal::owner_of(config.trainer.checkpoint_dir);
    if (owner && fs::exists(fs::path(config.output) / owner->run.filename() / "run_id"))
      return {owner->run.filename().string(), "the run that trainer.checkpoint_dir belongs to (--resume auto)"};
  }
  if (resumes) {
    if (const auto newest = newest_run_with_checkpoint(config)) return {*newest, "the newest run with a checkpoint (--resume auto)"};
  }
  const std::string name = config.model.name + "-" + label.value_or(base::time_label(std::time(nullptr)));
  std::string free = name;
  for (int n = 2; fs::exists(fs::path(config.output) / free) && (!label || has_checkpoints(fs::path(config.output) / free)); ++n)
    free = fmt::format("{}-{}", name, n);
  return {free, label ? "model.name and the launcher's job" : "model.name and the time", !label};
}

std::string command_for_machine(std::string command, std::span<const std::string> args, const std::string& address) {
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (is_flag(args[i],
                {"--node-rank", "parallel.node_rank", "machine_rank", "--master-addr", "parallel.master_addr", "main_process_ip"})) {
      if (args[i].find('=') == std::string::npos) ++i;
      continue;
    }
    command += " " + base::quoted(args[i]);
  }
  return fmt::format("{} --master-addr {} --node-rank 1", command, base::quoted(address));
}

std::string command_for_machine(const std::string& program, std::span<const std::string> args, const config::RunConfig& config,
                                const std::string& address) {
  std::vector<std::string> all(args.begin(), args.end());
  if (!names_its_run(args)) all.insert(all.end(), {"--name", config.name});
  return command_for_machine(base::quoted(program) + " train", all, address);
}

std::string resume_command(const std::string& program, std::span<const std::string> args, const std::string& name,
                           const std::string& from) {
  std::string command = base::quoted(program) + " train";
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (is_flag(args[i], {"--resume", "checkpoint.resume"})) {
      if (args[i].find('=') == std::string::npos) ++i;
      continue;
    }
    command += " " + base::quoted(args[i]);
  }
  if (!names_its_run(args)) command += " --name " + base::quoted(name);
  return command + " --resume " + base::quoted(from);
}

}  // namespace lockstep::job
