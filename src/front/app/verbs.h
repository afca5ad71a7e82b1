// The verbs of `lockstep`. Each takes the arguments after its name and returns the exit code; mistakes are thrown as UserError.
#pragma once

#include <span>
#include <string>

namespace lockstep::app {

int run_train_verb(std::span<const std::string> args, const std::string& typed_program);
int run_ask_verb(std::span<const std::string> args);
int run_ui_verb(std::span<const std::string> args);
int run_runs_verb(std::span<const std::string> args);
int run_watch_verb(std::span<const std::string> args);
int run_generate_verb(std::span<const std::string> args);
int run_chat_verb(std::span<const std::string> args);
int run_export_verb(std::span<const std::string> args);
int run_merge_verb(std::span<const std::string> args);
int run_data_verb(std::span<const std::string> args);
int run_devices_verb(std::span<const std::string> args);
int run_bench_verb(std::span<const std::string> args);
int run_plan_verb(std::span<const std::string> args);
int run_check_verb(std::span<const std::string> args);
int run_info_verb(std::span<const std::string> args);
int run_explain_verb(std::span<const std::string> args);
int run_launch_verb(std::span<const std::string> args);
int run_completion_verb(std::span<const std::string> args);
int run_version_verb(std::span<const std::string> args);

std::string general_help();

}  // namespace lockstep::app
