// The order of things in a run: own, tokenize, meet, start, restart, end.
#include "front/job/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <map>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "config/table/values.h"
#include "front/job/identity.h"
#include "front/job/memory_advice.h"
#include "front/job/naming.h"
#include "front/launch/libtorch.h"
#include "front/launch/meet/socket.h"
#include "journal/ending.h"
#include "journal/owner.h"
#include "corpus/samples/split.h"

namespace lockstep::job {
namespace {

namespace fs = std::filesystem;
using launch::Outcome;

constexpr std::chrono::seconds patience_with_disk(3);

// Someone who typed `lockstep train` alone may expect a question; what is about to be trained is said instead, with what to type.
bool nothing_was_said(const config::Settings& settings) {
  return std::none_of(settings.sources.begin(), settings.sources.end(), [](const auto& source) {
    const std::string& key = source.first;
    const bool names_work =
        key.starts_with("model.") || key.starts_with("data.") || key == "trainer.max_steps" || key == "trainer.num_epochs";
    return names_work && source.second.origin != config::Origin::standard && source.second.origin != config::Origin::derived;
  });
}

struct StoppedEarly {};  // while data was tokenized

std::string_view status_of(const Outcome& outcome) {
  switch (outcome.kind) {
    case Outcome::Kind::complete: return "complete";
    case Outcome::Kind::stopped: return "stopped";
    case Outcome::Kind::ended_at_once: return "ended";
    case Outcome::Kind::failed: return "failed";
  }
  return "";
}

// Where this machine's launcher serves Prometheus; 0: nowhere. A machine's own variable goes before the settings that all of them share.
int prometheus_port(const config::RunConfig& config, const launch::Environment& environment) {
  const auto text = launch::lookup(environment, "LOCKSTEP_PROMETHEUS_PORT");
  if (!text || text->empty()) return static_cast<int>(config.monitor.prometheus_port);
  const auto port = base::parse_integer(*text);
  if (!port || *port < 0 || *port > 65535)
    throw base::usage_error("monitor", "LOCKSTEP_PROMETHEUS_PORT={} is no port: give a number from 1 to 65535, or 0 for none.", *text);
  return static_cast<int>(*port);
}

// What a person must mend first would only fail again.
bool worth_a_restart(int exit_code) {
  return exit_code != static_cast<int>(base::ExitCode::usage) && exit_code != static_cast<int>(base::ExitCode::data);
}

}  // namespace

// Turns what the supervisor tells into events.
class Training::Ears : public launch::Observer {
 public:
  explicit Ears(Training& training) : training_(training) {}

  void tick(std::span<const journal::PageView> pages) override {
    if (training_.follower_)
      training_.follower_->poll([&](const std::string& text, const nlohmann::json& json) {
        training_.monitor_->hear(json);
        tell(MetricsLine{text, json});
      });
    for (const journal::PageView& page : pages) {
      auto& heard = notices_ns_[page.rank];
      if (page.notice_ns <= heard) continue;
      heard = page.notice_ns;
      tell(RankNotice{page.rank, page.notice});
    }
    tell(Pages{pages});
    training_.monitor_->see(pages);
    for (const std::string& news : training_.monitor_->take_news()) tell(Note{news});
  }
  void say(std::string_view line) override { tell(Note{std::string(line)}); }
  void rank_started(const launch::LocalRank& rank, pid_t pid) override {
    training_.monitor_->rank_started(rank, pid);
    tell(RankStarted{rank.rank, rank.device, pid, training_.setup_.job.folder.rank_log(rank.rank)});
  }
  void stopping(bool asked_elsewhere) override { tell(Stopping{asked_elsewhere}); }
  void stalled(const launch::Stall& stall, double abort_seconds) override { tell(Stalled{stall, abort_seconds}); }
  void moves_again() override { tell(MovesAgain{}); }

 private:
  void tell(const Event& event) const { training_.listener_(event); }

  Training& training_;
  std::map<std::uint32_t, std::int64_t> notices_ns_;  // by rank, of the last one told
};

Training::Training(config::Settings settings, launch::Environment environment, Called called, Listener listener)
    : environment_(std::move(environment)),
      called_(std::move(called)),
      listener_(std::move(listener)),
      setup_(set_up(std::move(settings), environment_)) {
  if (!nothing_was_said(setup_.settings)) return;
  setup_.plan.notes.emplace_back(
      "no -f, --model or --data: a small new model learns the built-in stories once through, which takes minutes on a GPU and a quarter of "
      "an hour on two cores. A run of a minute: lockstep train -f models/nano.yaml. Your own: lockstep train --model DIR --data FILE.");
}

void Training::count_samples() {
  corpus::check_data_exists(config());
  if (config().trainer.max_steps == 0) setup_.plan.epoch_samples = corpus::count_training_samples(config());
}

void Training::prepare() {
  launch::use_own_worker(setup_.job, environment_);
  take_ownership();
  tokenize();
}

// Before anything is written: a run that someone else trains is left alone.
void Training::take_ownership() {
  if (!shows()) return;
  owned_.emplace(setup_, [this](std::string_view line) { listener_(WaitingForOwner{std::string(line)}); });
  setup_.job.environment["LOCKSTEP_LEASE"] = owned_->token();
  setup_.job.must_end = [this] { return owned_ ? owned_->lost_to() : std::nullopt; };
}

void Training::tokenize() {
  const DataListener listener{.on_progress =
                                  [this](const std::string& path, double share) {
                                    if (stop_.is_asked()) throw StoppedEarly{};
                                    listener_(Tokenizing{path, share});
                                  },
                              .on_wait = [this](const std::string& path) { listener_(WaitingForData{path}); }};
  std::vector<std::string> keys;
  for (const PreparedPart& part : prepare_data(config(), listener)) {
    keys.push_back(part.prepared.cache->key());
    listener_(DataReady{part});
  }
  prepared_ = std::move(keys);
}

std::vector<launch::meet::SharedFolder> Training::shared_folders() const {
  std::vector<launch::meet::SharedFolder> folders = {{"--output", fs::absolute(setup_.job.folder.root).string()}};
  if (const std::string& extra = config().trainer.checkpoint_dir; !extra.empty())
    folders.push_back({"trainer.checkpoint_dir", fs::absolute(extra).string()});
  return folders;
}

// Rank 0's launcher writes the run folder's config; another rank of a foreign job hands its worker a copy of its own. So does a restart
// that finds the disk full.
void Training::write_config(bool restart) {
  launch::Job& job = setup_.job;
  base::real_files().create_directories(job.folder.root);
  if (setup_.writes_shared_files) journal::remove_ending(job.folder);
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

void Training::remove_private_config() const {
  std::error_code error;
  fs::remove(setup_.job.config, error);
  fs::remove(setup_.job.config.parent_path(), error);
}

Ended Training::run() {
  try {
    if (!prepared_) prepare();
  } catch (const StoppedEarly&) {
    return conclude({.kind = Outcome::Kind::stopped}, 0);
  }
  launch::sweep_old_pages();
  const bool alone = setup_.job.world_size == 1 || !(Meeting::is_needed(setup_) || setup_.place);
  meeting_.emplace(setup_, environment_, alone ? journal::Identity() : identity_of(config(), *prepared_), shared_folders());
  if (shows()) follower_.emplace(setup_.job.folder.metrics());
  monitor_ = make_monitor();
  Ended ended = run_with_restarts();
  if (private_config_) remove_private_config();
  return ended;
}

// Of this machine, or where another launcher starts ranks one by one, of this rank.
std::unique_ptr<monitor::Monitor> Training::make_monitor() const {
  const bool first_here = !setup_.place || setup_.place->local_rank == 0;
  const launch::Job& job = setup_.job;
  // Here, as it may throw: GCC 12 destroys members of an aggregate twice where the making of a later one throws.
  const int port = first_here ? prometheus_port(config(), environment_) : 0;
  std::optional<journal::WandbWriter::Options> wandb;
  if (shows() && (config().monitor.wandb || launch::is_on(environment_, "LOCKSTEP_WANDB"))) {
    wandb.emplace(journal::WandbWriter::Options{
        .id = journal::run_id(base::real_files(), job.folder), .name = config().name, .project = config().monitor.wandb_project});
    for (const config::KeyValue& one : config::key_values(config())) wandb->settings.emplace_back(one.key, one.value);
  }
  return std::make_unique<monitor::Monitor>(
      monitor::Monitor::Options{.folder = job.folder,
                                .facts = {.host = launch::meet::host_name(),
                                          .job = job.id,
                                          .machine = static_cast<int>(setup_.place ? setup_.place->rank : config().parallel.node_rank)},
                                .visible_devices = job.visible_devices,
                                .prometheus_port = port,
                                .tensorboard = config().monitor.tensorboard,
                                .wandb = std::move(wandb)});
}

Ended Training::run_with_restarts() {
  Ears ears(*this);
  invite();
  const std::int64_t allowed = setup_.place ? 0 : config().parallel.max_restarts;
  const std::int64_t start = base::now_ns();
  for (std::int64_t restart = 0;; ++restart) {
    if (const auto ended = meeting_->begin(static_cast<int>(restart), ears, stop_)) return conclude(*ended, 0);
    if (restart == 0) listener_(Planned{plan(), config()});
    write_config(restart > 0);
    Outcome outcome = launch::run_job(setup_.job, ears, stop_, meeting_->machines());
    // Whoever asked the ranks themselves to stop did not ask us.
    if (outcome.kind == Outcome::Kind::complete && follower_ && follower_->was_stopped()) outcome.kind = Outcome::Kind::stopped;
    const bool again = starts_again(outcome, restart < allowed);
    if (auto* machines = meeting_->machines()) machines->conclude({.outcome = outcome, .restarts = again});
    if (!again) return conclude(std::move(outcome), base::seconds_since(start));
    listener_(Restarting{outcome.report, restart + 1, allowed, choose_restart()});
  }
}

void Training::invite() const {
  const std::string command = meeting_->invitation(called_.program, called_.arguments);
  if (!command.empty()) listener_(Invitation{command, config().parallel.nnodes > 2});
}

// Machine 0 decides for all; where it is gone, the others meet the next one.
bool Training::starts_again(const Outcome& outcome, bool allowed) const {
  if (outcome.kind != Outcome::Kind::failed) return false;
  const auto* machines = meeting_->machines();
  if (machines != nullptr && !machines->judges() && machines->in_touch()) return machines->meets_again();
  return allowed && worth_a_restart(outcome.report.exit_code) && !(owned_ && owned_->lost_to());
}

// What --resume has to say for the run to go on: "auto" means its own newest checkpoint.
std::string Training::resumes_from() const {
  const std::string& from = config().checkpoint.resume;
  if (from.empty() || from == "auto") return "auto";
  // Until the ranks have gone back to the checkpoint that was asked for, later ones of the run still stand beside it.
  const bool has_started = follower_ && follower_->has_started();
  return has_started && !journal::list_checkpoints(checkpoints_of(config())).empty() ? "auto" : from;
}

// Where the next start begins, in words; the settings say so from here on.
std::string Training::choose_restart() {
  config::RunConfig& config = setup_.settings.values;
  const auto checkpoints = journal::list_checkpoints(checkpoints_of(config));
  const std::string from = config.checkpoint.resume;
  if (!checkpoints.empty() && resumes_from() == "auto") {
    config.checkpoint.resume = "auto";
    setup_.settings.sources["checkpoint.resume"] = {config::Origin::derived, "a restart"};
    return fmt::format("the newest whole checkpoint, {}", checkpoints.back().path.string());
  }
  return from.empty() || from == "auto" ? "the beginning: there is no checkpoint yet" : from;
}

Ended Training::conclude(Outcome outcome, double seconds) {
  if (outcome.kind == Outcome::Kind::failed && tells_of_full_memory(outcome.report.text))
    outcome.report.text += after_full_memory(setup_, least_room(setup_, environment_));
  Ended ended{.outcome = std::move(outcome),
              .folder = setup_.job.folder.root,
              .resume = resume_command(called_.program, called_.arguments, config().name, resumes_from()),
              .has_checkpoint = resumes_from() != "auto" || !journal::list_checkpoints(checkpoints_of(config())).empty(),
              .seconds = seconds,
              .last_step = follower_ ? follower_->last_step() : 0,
              .last_loss = follower_ ? follower_->last_loss() : std::nullopt};
  if (ended.outcome.kind == Outcome::Kind::ended_at_once) ended.exit_code = 128 + ended.outcome.signal;
  if (ended.outcome.kind == Outcome::Kind::failed) ended.exit_code = ended.outcome.report.exit_code;
  // Whoever hears of the end may go on with the run; but a disk that does not answer keeps nobody from hearing.
  auto put_away = std::async(std::launch::async, [this, ended] {  // a copy: the disk may answer after this has returned
    std::optional<std::string> problem = leave_ending(ended);
    monitor_.reset();
    owned_.reset();
    return problem;
  });
  if (put_away.wait_for(patience_with_disk) == std::future_status::ready) {
    if (const auto problem = put_away.get()) listener_(Note{*problem});
  }
  listener_(ended);
  return ended;
}

// For whoever looks at the run folder later. A run that never began leaves nothing, and a full disk is no second failure: it is said.
std::optional<std::string> Training::leave_ending(const Ended& ended) const {
  std::error_code none;
  if (!owned_ || owned_->lost_to() || !fs::exists(setup_.job.folder.config(), none)) return std::nullopt;
  const launch::Report& report = ended.outcome.report;
  try {
    journal::write_ending(setup_.job.folder, {.status = std::string(status_of(ended.outcome)),
                                              .exit_code = ended.exit_code,
                                              .rank = report.rank,
                                              .error = report.headline,
                                              .report = report.text,
                                              .resume = ended.resume,
                                              .seconds = ended.seconds,
                                              .last_step = ended.last_step});
  } catch (const base::UserError& error) {
    return error.what();
  }
  return std::nullopt;
}

}  // namespace lockstep::job
