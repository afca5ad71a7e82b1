// `lockstep train`: a run, shown on this terminal and steered from it.
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "config/config.h"
#include "front/app/verbs.h"
#include "front/job/training.h"
#include "front/show/display.h"
#include "front/show/end_of_input.h"
#include "front/show/plan_text.h"
#include "front/show/signals.h"

namespace lockstep::app {
namespace {

constexpr const char* train_help = R"(lockstep train [-f FILE] [flags] [section.key=value ...]

Trains on every GPU of this machine, or on two CPU ranks where there is none.

  lockstep train -f models/nano.yaml
  lockstep train -f models/small.yaml -d tokens.bin --gpus 0,1 --dtype bf16 trainer.learning_rate=3e-4

)";

// A matter of this start alone, so no setting: a run that is resumed from its config must not end with an input that it does not have.
constexpr const char* stop_with_stdin = "--stop-with-stdin";

constexpr const char* help_start = R"(
This start
  --stop-with-stdin          saves and ends when standard input does: for programs that start it through a pipe and may be killed
)";

constexpr const char* help_environment = R"(
Environment
  LOCKSTEP_SINGLE_GPU=1      use one GPU
  LOCKSTEP_OVERSUBSCRIBE=1   let several ranks share a GPU, for tests
  LOCKSTEP_LIBTORCH=DIR      the LibTorch to run with
  LOCKSTEP_CACHE=DIR         for tokenized data and the fastest matmuls of each GPU; ~/.cache/lockstep otherwise
  LOCKSTEP_PROMETHEUS_PORT=N monitor.prometheus_port of this machine alone
  LOCKSTEP_WANDB=1           monitor.wandb=true
  LOCKSTEP_SECRET=TEXT       what machines of one run prove to each other that they know; machine 0 makes one otherwise
  LOCKSTEP_PROGRAM=PATH      the lockstep that the Python package and liblockstep start
  LOCKSTEP_WORKER=PATH       another worker program, for tests
  LOCKSTEP_SECTION_KEY=VALUE any setting, as in LOCKSTEP_TRAINER_SEED=1
Under torchrun, srun or mpirun, or with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, it becomes that one rank.
)";

// Every rank of mpirun has a terminal of mpirun's making, wherever its output goes.
bool is_of_mpirun(const std::optional<launch::Place>& place) { return place && place->launcher == "mpirun"; }

// What every rank would hold and move, looked through before there is a rank.
std::string checked_tables(const job::RunPlan& plan, const config::RunConfig& config) {
  const std::int64_t start = base::now_ns();
  const layout::Tables tables = layout::tables_of(config, plan.batch.gradient_accumulation, plan.world_size);
  if (const std::string wrong = layout::wrong_with(tables); !wrong.empty()) throw base::Bug(wrong);
  return tables.units.empty() ? "" : show::to_text(tables, base::seconds_since(start));
}

}  // namespace

int run_train_verb(std::span<const std::string> typed, const std::string& typed_program) {
  std::vector<std::string> args(typed.begin(), typed.end());
  std::optional<show::EndOfInput> end_of_input;
  if (std::erase(args, stop_with_stdin) > 0) end_of_input.emplace();
  const config::CommandLine line = config::parse_command_line(args);
  if (line.help) {
    std::fputs((train_help + config::flags_help() + help_start + help_environment).c_str(), stdout);
    return 0;
  }
  config::expect_no_leftover(line, "lockstep train");
  std::optional<show::Display> display;
  job::Training training(config::load(line.request), launch::process_environment(), {.program = typed_program, .arguments = args},
                         [&](const job::Event& event) { display->hear(event); });
  const config::RunConfig& config = training.config();
  display.emplace(show::Display::Options{.headless = config.monitor.headless,
                                         .quiet = !training.speaks(),
                                         .steps = training.shows(),
                                         .terminal = ::isatty(STDOUT_FILENO) == 1 && !is_of_mpirun(training.place()),
                                         .total_steps = config.trainer.max_steps,
                                         .place = training.place()});
  if (config.launch.dry_run) {
    training.count_samples();
    display->show_plan(training.plan(), config);
    const std::string tables = checked_tables(training.plan(), config);
    if (!config.monitor.headless) std::fputs((tables + "dry run: nothing was started.\n").c_str(), stdout);
    return 0;
  }
  training.prepare();  // may take a while, and Ctrl-C ends it: signals are caught from here on
  const show::Signals signals([&](int signal) { training.stop(signal); });
  return training.run().exit_code;
}

}  // namespace lockstep::app
