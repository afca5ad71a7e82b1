// One run of `lockstep train`, from its settings to its end, as an object. Read this header and events.h first.
#pragma once

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "front/job/events.h"
#include "front/job/follower.h"
#include "front/job/meeting.h"
#include "front/job/ownership.h"
#include "front/job/setup.h"
#include "front/monitor/monitor.h"

namespace lockstep::job {

// Hears of everything while prepare() and run() last: from their thread, and of Tokenizing from those that tokenize, one at a time.
// What it throws ends the run.
using Listener = std::function<void(const Event&)>;

// How the run was asked for: commands that people can copy are made from it.
struct Called {
  std::string program = "lockstep";
  std::vector<std::string> arguments = {};  // behind `train`
};

// Prints nothing, reads no terminal, takes no signals and changes nothing of its process, so several can live in one, one after the other
// or on threads of their own. Children end with the thread that calls run(), which must not ignore SIGCHLD. Mistakes of people and
// machines are thrown as UserError by each call; what befalls the ranks is told by Ended.
class Training {
 public:
  // Decides all that can be decided before the start; touches nothing on disk.
  Training(config::Settings settings, launch::Environment environment, Called called, Listener listener);
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  const config::RunConfig& config() const { return setup_.settings.values; }
  const RunPlan& plan() const { return setup_.plan; }
  const std::optional<launch::Place>& place() const { return setup_.place; }  // where another launcher started this rank
  // Rank 0 is here, and with it the run folder. Other launchers of the same run leave showing it to this one.
  bool shows() const { return setup_.writes_shared_files; }
  // Each machine's launcher, but not that of every rank.
  bool speaks() const { return shows() || !setup_.place; }

  // For a plan that is shown and not carried out: where the steps follow from the data, counts it.
  void count_samples();
  // Takes the run folder and tokenizes the data, which may take long. run() does it where nobody did before.
  void prepare();
  // Starts the ranks, again where they fail and may restart, and returns when no process of the run is left. Once.
  Ended run();

  // From any thread, or from a signal handler. The first time the ranks finish their step, save and end; the second time they end at
  // once, and the run's exit code is 128 + signal.
  void stop(int signal = SIGTERM) const { stop_.ask(signal); }

 private:
  class Ears;
  void take_ownership();
  void tokenize();
  std::vector<launch::meet::SharedFolder> shared_folders() const;
  void write_config(bool restart);
  void remove_private_config() const;
  std::unique_ptr<monitor::Monitor> make_monitor() const;
  Ended run_with_restarts();
  void invite() const;
  bool starts_again(const launch::Outcome& outcome, bool allowed) const;
  std::string resumes_from() const;
  std::string choose_restart();
  Ended conclude(launch::Outcome outcome, double seconds);
  std::optional<std::string> leave_ending(const Ended& ended) const;  // why it could not be left

  launch::Environment environment_;
  Called called_;
  Listener listener_;
  launch::StopWish stop_;
  Setup setup_;
  std::optional<Ownership> owned_;
  std::optional<std::vector<std::string>> prepared_;  // keys of tokenized data
  std::optional<Meeting> meeting_;
  std::optional<Follower> follower_;  // where shows()
  std::unique_ptr<monitor::Monitor> monitor_;
  bool private_config_ = false;
};

}  // namespace lockstep::job
