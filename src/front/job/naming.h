// What a run is called and which folder it lies in.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "config/run_config.h"

namespace lockstep::job {

struct RunName {
  std::string name;
  std::string reason;   // what it follows from, if it was not given
  bool is_new = false;  // made up for a run that starts now: another name would do as well
};

// The name of a run's folder under config.output. `label`: what all ranks of another launcher agree on, or nothing to use the time.
// With --resume auto and no name, the newest run of this model that has a checkpoint.
// UserError if the named run already has checkpoints and is not to be resumed: its files would be written over.
RunName name_run(const config::RunConfig& config, const std::optional<std::string>& label);

// UserError if the run has checkpoints and is not to be resumed, wherever they lie.
void refuse_to_overwrite(const config::RunConfig& config);

// Where this run's checkpoints lie.
std::filesystem::path checkpoints_of(const config::RunConfig& config);

// The command that starts machine 1 of a run, from the arguments machine 0 was started with; `address` is machine 0's.
std::string command_for_machine(const std::string& program, std::span<const std::string> args, const config::RunConfig& config,
                                const std::string& address);
// The same for any command ("lockstep check") that machines meet by.
std::string command_for_machine(std::string command, std::span<const std::string> args, const std::string& address);

// The command that goes on with a run, from the arguments it was started with.
std::string resume_command(const std::string& program, std::span<const std::string> args, const std::string& name,
                           const std::string& from = "auto");

}  // namespace lockstep::job
