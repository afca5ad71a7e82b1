// The settings of a run: read them from a file, the environment and the command line, know where each came from, print them back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"
#include "layout/dims.h"

namespace lockstep::config {

enum class Origin { standard, derived, file, environment, command_line };

// Where a value came from. text(): "default", "follows from model.num_heads", "models/nano.yaml:12", "LOCKSTEP_TRAINER_SEED", "--lr".
struct Source {
  Origin origin = Origin::standard;
  std::string where;
  std::string text() const;
};

// One value as a person gave it: `key` is any accepted spelling, `where` what to call the place in messages ("--lr").
struct Assignment {
  std::string key;
  std::string value;
  std::string where;
};

// What a person asked for. Later layers win: default < file < environment < command line; on the command line the last one wins.
struct Request {
  std::optional<std::filesystem::path> file;       // YAML or JSON, told apart by content
  std::map<std::string, std::string> environment;  // the LOCKSTEP_* variables; others are not looked at
  std::vector<Assignment> assignments;             // flags and section.key=value, in the order typed
};

struct Settings {
  RunConfig values;                       // complete: model shape and data.seq_len are filled in
  std::map<std::string, Source> sources;  // by key ("trainer.learning_rate"), one for every option

  const Source& source(std::string_view key) const;
};

struct CommandLine {
  Request request;
  std::vector<std::string> leftover;  // what is neither a flag nor an assignment, and all after "--"
  bool help = false;                  // -h or --help was among the arguments
};

// Reads what follows a verb. Unknown flags and flags without their value are all reported in one UserError.
CommandLine parse_command_line(std::span<const std::string> args, std::map<std::string, std::string> environment);
CommandLine parse_command_line(std::span<const std::string> args);  // with this process's environment
// For commands that take nothing but settings: UserError that names the first leftover argument. `command`: "lockstep train".
void expect_no_leftover(const CommandLine& line, std::string_view command);
std::map<std::string, std::string> process_environment();  // its LOCKSTEP_* variables

// Applies the layers and checks every value and what must hold between them. Throws one UserError that lists all mistakes.
Settings load(const Request& request);

// The resolved settings, one key a line, each with a comment that says where it came from. load_resolved() reads the same values back.
std::string to_yaml(const Settings& settings);
RunConfig load_resolved(const std::filesystem::path& path);

// Batch, accumulation and learning rate for so many data-parallel ranks. UserError, naming the nearest values that do, if it does not
// divide.
BatchPlan plan_batch(const RunConfig& config, int ranks);

// Steps of warm-up in a run of so many: trainer.warmup_steps, or the share warmup_ratio of all, or the shorter of both.
std::int64_t warmup_steps(const TrainerConfig& trainer, std::int64_t total_steps);

using layout::with_defaults;  // fills in what may be left out of a model's shape

// The names the config files use.
std::string_view name_of(DType dtype);
std::string_view name_of(Family family);
std::string_view name_of(Backend backend);
std::string_view name_of(DeviceKind kind);
std::string_view name_of(LrScaling scaling);
std::string_view name_of(Recompute recompute);
std::string_view name_of(LrSchedule schedule);
std::string_view name_of(DataKind kind);
std::string_view name_of(TokenType type);
std::string_view name_of(ReduceDType type);
std::string_view name_of(ShardKind kind);
std::string_view name_of(RecordFormat format);
std::string_view name_of(TrainOn on);
std::string_view name_of(Optimizer optimizer);
std::string_view name_of(StateDType dtype);
std::string_view name_of(RopeScaling scaling);

std::optional<DType> dtype_named(std::string_view name);  // any spelling; nothing for others

// Made from the table of options.
std::string json_schema();  // JSON Schema of a config file, for editors
std::string explain(
    std::string_view name);             // a key, alias, flag or section in a few lines, or "" for all; UserError if there is no such thing
std::string flags_help();               // the flags of `lockstep train`, one a line, grouped
std::string markdown_reference();       // docs/configuration.md
std::vector<std::string> known_keys();  // every key, in the table's order

}  // namespace lockstep::config
