// `lockstep train`: settings, plan, ranks, progress, and how it ended.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "config/config.h"
#include "front/app/display.h"
#include "front/app/identity.h"
#include "front/app/meeting.h"
#include "front/app/naming.h"
#include "front/app/ownership.h"
#include "front/app/prepare_data.h"
#include "front/app/train_setup.h"
#include "front/app/verbs.h"
#include "front/launch/libtorch.h"
#include "records/split.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using launch::Outcome;

constexpr const char* help_text = R"(lockstep train [-f FILE] [flags] [section.key=value ...]

Trains on every GPU of this machine, or on two CPU ranks where there is none.

  lockstep train -f models/nano.yaml
  lockstep train -f models/small.yaml -d tokens.bin --gpus 0,1 --dtype bf16 trainer.learning_rate=3e-4

)";

constexpr const char* help_environment = R"(
Environment
  LOCKSTEP_SINGLE_GPU=1      use one GPU
  LOCKSTEP_OVERSUBSCRIBE=1   let several ranks share a GPU, for tests
  LOCKSTEP_LIBTORCH=DIR      the LibTorch to run with
  LOCKSTEP_CACHE=DIR         for tokenised data and the fastest matmuls of each GPU; ~/.cache/lockstep otherwise
  LOCKSTEP_SECRET=TEXT       what machines of one run prove to each other that they know; machine 0 makes one otherwise
  LOCKSTEP_WORKER=PATH       another worker program, for tests
  LOCKSTEP_SECTION_KEY=VALUE any setting, as in LOCKSTEP_TRAINER_SEED=1
Under torchrun, srun or mpirun, or with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, it becomes that one rank.
)";

// One `lockstep train`, from the first look at the machine to the exit code.
class Training {
 public:
  Training(TrainSetup setup, std::span<const std::string> args, const std::string& program, const launch::Environment& environment)
      : setup_(std::move(setup)), args_(args), program_(program), environment_(environment) {}

  int run() {
    const config::RunConfig& config = setup_.settings.values;
    const bool headless = config.monitor.headless;
    if (config.launch.dry_run) {
      if (config.trainer.max_steps == 0) setup_.plan.epoch_samples = records::count_training_samples(config);
      print_plan();
      if (!headless) std::fputs("dry run: nothing was started.\n", stdout);
      return 0;
    }
    const fs::path program = launch::own_program();
    setup_.job.worker = launch::find_worker(environment_, program);
    setup_.job.library_path = launch::library_path(launch::find_libtorch(environment_, program), environment_);
    take_ownership();
    const std::vector<std::string> prepared = prepare();  // may take a while, and Ctrl-C ends it: signals are caught from here on
    launch::Signals signals;
    launch::sweep_old_pages();
    const bool alone = setup_.job.world_size == 1 || !(Meeting::is_needed(setup_) || setup_.place);
    meeting_.emplace(setup_, environment_, alone ? record::Identity() : identity_of(config, prepared), shared_folders());
    const int code = run_with_restarts(signals);
    if (private_config_) remove_private_config();
    return code;
  }

 private:
  bool shows() const { return setup_.writes_shared_files; }
  bool speaks() const { return shows() || !setup_.place; }  // each machine's launcher, but not that of every rank
  bool headless() const { return setup_.settings.values.monitor.headless; }

  // Before anything is written: a run that someone else trains is left alone.
  void take_ownership() {
    if (!setup_.writes_shared_files) return;
    owned_.emplace(setup_, [](std::string_view line) { std::fputs(fmt::format("[launch] {}\n", line).c_str(), stderr); });
    setup_.job.environment["LOCKSTEP_LEASE"] = owned_->token();
    setup_.job.must_end = [this] { return owned_->lost_to(); };
  }

  // The keys of tokenised data.
  std::vector<std::string> prepare() const {
    std::vector<std::string> keys;
    for (const PreparedPart& part : prepare_data(setup_.settings.values)) {
      keys.push_back(part.prepared.cache->key());
      if (!shows()) continue;
      if (headless()) {
        const nlohmann::ordered_json counts = base::parse_json(part.prepared.cache->counts().to_json());
        std::puts(nlohmann::ordered_json{{"event", "data"}, {"path", part.path}, {"cached", !part.prepared.made}, {"counts", counts}}
                      .dump()
                      .c_str());
      } else {
        std::puts(describe(part).c_str());
        for (const std::string& example : part.prepared.cache->counts().examples) std::puts(("  skipped: " + example).c_str());
      }
    }
    return keys;
  }

  std::vector<launch::meet::SharedFolder> shared_folders() const {
    std::vector<launch::meet::SharedFolder> folders = {{"--output", fs::absolute(setup_.job.folder.root).string()}};
    if (const std::string& extra = setup_.settings.values.trainer.checkpoint_dir; !extra.empty())
      folders.push_back({"trainer.checkpoint_dir", fs::absolute(extra).string()});
    return folders;
  }

  void print_plan() const {
    const config::RunConfig& config = setup_.settings.values;
    std::fputs(((headless() ? to_json(setup_.plan, config) + "\n" : to_text(setup_.plan, config))).c_str(), stdout);
    std::fflush(stdout);
  }

  // Rank 0's launcher writes the run folder's config; another rank of a foreign job hands its worker a copy of its own. So does a restart
  // that finds the disk full.
  void write_config(bool restart = false) {
    launch::Job& job = setup_.job;
    base::real_files().create_directories(job.folder.root);
    const std::string text = config::to_yaml(setup_.settings);
    if (setup_.writes_shared_files) {
      job.config = job.folder.config();
      try {
        return base::write_text_atomically(base::real_files(), job.config, text);
      } catch (const base::UserError& error) {
        if (!restart || !base::tells_of_a_full_disk(error.what())) throw;
      }
    }
    job.config = launch::make_pages_folder(job.id) / fmt::format("{}.yaml", job.ranks.front().rank);
    private_config_ = true;
    base::write_text_atomically(base::real_files(), job.config, text);
  }

  void remove_private_config() const {
    std::error_code error;
    fs::remove(setup_.job.config, error);
    fs::remove(setup_.job.config.parent_path(), error);
  }

  int run_with_restarts(launch::Signals& signals) {
    const config::RunConfig& config = setup_.settings.values;
    Display display(setup_.job.folder.metrics(), {.headless = headless(),
                                                  .quiet = !speaks(),
                                                  .steps = shows(),
                                                  .terminal = ::isatty(STDOUT_FILENO) == 1,
                                                  .total_steps = config.trainer.max_steps});
    invite(display);
    const std::int64_t allowed = setup_.place ? 0 : config.parallel.max_restarts;
    const std::int64_t start = base::now_ns();
    for (std::int64_t restart = 0;; ++restart) {
      if (const auto ended = meeting_->begin(static_cast<int>(restart), display, signals)) return conclude(*ended, display, 0);
      if (shows() && restart == 0) print_plan();
      write_config(restart > 0);
      Outcome outcome = launch::run_job(setup_.job, display, signals, meeting_->machines());
      // Whoever asked the ranks themselves to stop did not ask us.
      if (outcome.kind == Outcome::Kind::complete && display.was_stopped()) outcome.kind = Outcome::Kind::stopped;
      display.clear_bar();
      const bool again = starts_again(outcome, restart < allowed);
      if (auto* machines = meeting_->machines()) machines->conclude({.outcome = outcome, .restarts = again});
      if (!again) return conclude(outcome, display, base::seconds_since(start));
      display.complain(outcome.report.text);
      prepare_restart(display, restart + 1, allowed);
    }
  }

  void invite(Display& display) const {
    const std::string command = meeting_->invitation(program_, args_);
    if (command.empty()) return;
    const bool more = setup_.settings.values.parallel.nnodes > 2;
    display.say(fmt::format("start the other machine{} with{}\n  {}", more ? "s" : "", more ? " (--node-rank 2, 3, ... on the next)" : "",
                            command));
  }

  // Machine 0 decides for all; where it is gone, the others meet the next one.
  bool starts_again(const Outcome& outcome, bool allowed) const {
    if (outcome.kind != Outcome::Kind::failed) return false;
    const auto* machines = meeting_->machines();
    if (machines != nullptr && !machines->judges() && machines->in_touch()) return machines->meets_again();
    return allowed && worth_a_restart(outcome.report.exit_code) && !(owned_ && owned_->lost_to());
  }

  // What a person must mend first would only fail again.
  static bool worth_a_restart(int exit_code) {
    return exit_code != static_cast<int>(base::ExitCode::usage) && exit_code != static_cast<int>(base::ExitCode::data);
  }

  void prepare_restart(Display& display, std::int64_t restart, std::int64_t allowed) {
    config::RunConfig& config = setup_.settings.values;
    const auto checkpoints = record::list_checkpoints(checkpoints_of(config));
    std::string from = config.checkpoint.resume;
    // Until the ranks have gone back to the checkpoint that was asked for, later ones of the run still stand beside it.
    if (!checkpoints.empty() && (display.has_started() || from.empty() || from == "auto")) {
      from = fmt::format("the newest whole checkpoint, {}", checkpoints.back().path.string());
      config.checkpoint.resume = "auto";
      setup_.settings.sources["checkpoint.resume"] = {config::Origin::derived, "a restart"};
    } else if (from.empty() || from == "auto") {
      from = "the beginning: there is no checkpoint yet";
    }
    display.say(fmt::format("restart {} of {} from {}.", restart, allowed, from));
  }

  int conclude(const Outcome& outcome, Display& display, double seconds) {
    const std::string folder = setup_.job.folder.root.string();
    const std::string resume = resume_command(program_, args_, setup_.settings.values.name);
    nlohmann::ordered_json last = {{"event", "end"}, {"run", folder}, {"seconds", seconds}};
    int code = 0;
    std::string words;
    switch (outcome.kind) {
      case Outcome::Kind::complete:
        last["status"] = "complete";
        words = !shows() ? fmt::format("finished.\nrun folder: {}\n", folder)
                         : fmt::format("finished {} steps in {}{}.\nrun folder: {}\n", display.last_step(), base::human_duration(seconds),
                                       display.last_loss() ? fmt::format(", loss {:.4f}", *display.last_loss()) : "", folder);
        break;
      case Outcome::Kind::stopped:
        last["status"] = "stopped";
        last["resume"] = resume;
        words = outcome.trained ? fmt::format("stopped; everything is saved. Resume with\n  {}\nrun folder: {}\n", resume, folder)
                                : fmt::format("stopped before the first step; there was nothing to save.\nrun folder: {}\n", folder);
        break;
      case Outcome::Kind::ended_at_once:
        code = 128 + outcome.signal;
        last["status"] = "ended";
        words = fmt::format("ended at once; steps since the last checkpoint are lost. Resume with\n  {}\nrun folder: {}\n", resume, folder);
        break;
      case Outcome::Kind::failed:
        code = outcome.report.exit_code;
        last["status"] = "failed";
        last["error"] = outcome.report.headline;
        if (outcome.report.rank) last["rank"] = *outcome.report.rank;
        complain(outcome, display, resume);
        break;
    }
    last["exit_code"] = code;
    if (speaks() && headless()) std::fputs((last.dump() + "\n").c_str(), stdout);
    if (speaks() && !headless()) std::fputs(words.c_str(), stdout);
    std::fflush(stdout);
    return code;
  }

  // Of several launchers on a machine, the failed rank's and the first one's speak at length.
  void complain(const Outcome& outcome, Display& display, const std::string& resume) const {
    const bool mine = !setup_.place || setup_.place->local_rank == 0 || outcome.report.rank == setup_.place->rank;
    if (!mine) return display.complain("[launch] " + outcome.report.headline + ".\n");
    std::string text = outcome.report.text;
    if (!record::list_checkpoints(checkpoints_of(setup_.settings.values)).empty()) text += fmt::format("  Resume with: {}\n", resume);
    display.complain(text + fmt::format("  Run folder: {}\n", setup_.job.folder.root.string()));
  }

  TrainSetup setup_;
  std::span<const std::string> args_;
  const std::string& program_;
  const launch::Environment& environment_;
  std::optional<Ownership> owned_;
  std::optional<Meeting> meeting_;
  bool private_config_ = false;
};

}  // namespace

int run_train_verb(std::span<const std::string> args, const std::string& typed_program) {
  const config::CommandLine line = config::parse_command_line(args);
  if (line.help) {
    std::fputs((help_text + config::flags_help() + help_environment).c_str(), stdout);
    return 0;
  }
  config::expect_no_leftover(line, "lockstep train");
  const launch::Environment environment = launch::process_environment();
  return Training(set_up(config::load(line.request), environment), args, typed_program, environment).run();
}

}  // namespace lockstep::app
