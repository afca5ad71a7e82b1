// Runs the ranks of this machine: starts a worker for each, watches them, and says how it ended. Read this header first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "front/launch/environment.h"
#include "front/launch/peers.h"
#include "front/launch/process.h"
#include "front/launch/report/report.h"
#include "front/launch/stop_wish.h"
#include "front/launch/watch.h"
#include "journal/page.h"
#include "journal/run_folder.h"

namespace lockstep::launch {

struct LocalRank {
  int rank = 0;
  int local_rank = 0;
  std::string device;  // "cpu", "cuda:0"
};

// Everything that starting the ranks needs.
struct Job {
  std::string id;  // names the folder of the pages
  journal::RunFolder folder;
  std::filesystem::path config;  // resolved settings, for the workers
  std::filesystem::path worker;
  std::vector<std::string> arguments;  // of the workers; empty: train with `config` in `folder`
  std::string library_path;
  Environment environment;  // what the workers' environment is made from
  std::vector<LocalRank> ranks;
  int world_size = 1;
  int local_world_size = 1;
  // Where ranks meet: under torchrun its store, otherwise that of rank 0, which other machines reach by a port of their own launcher.
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  int store_socket = -1;  // listens there already, for rank 0 to take over; -1: rank 0 is not here, or the store is torchrun's
  std::string run_key;    // with `restart`, in every key of the store: ranks of two jobs, or of two starts of one, never meet
  int restart = 0;
  std::string identity;   // of this run, for ranks to compare themselves; empty: the launchers have
  std::string bind_host;  // this machine's address in the eyes of the others; empty: there are no others
  int threads = 1;
  int input = -1, output = -1;  // of rank 0: what becomes its standard input and output; -1: nothing, and its log
  std::optional<std::string> visible_devices;
  bool shared_gpus = false;
  bool foreign = false;  // another launcher started this rank: the others of this machine are only seen by their pages
  double stall_seconds = 30;
  double stall_abort_seconds = 120;
  // Asked several times a second: a reason to end the job at once, without a last save.
  std::function<std::optional<std::string>()> must_end = {};
};

// The environment of one rank's worker.
Environment worker_environment(const Job& job, const LocalRank& rank);

// Hears of the job while it runs; called from the thread that runs it. What is not taken up as it is comes as a line for people.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void tick(std::span<const journal::PageView> pages) = 0;  // several times a second
  virtual void say(std::string_view line) = 0;                      // for people
  virtual void rank_started(const LocalRank& rank, pid_t pid);
  virtual void stopping(bool asked_elsewhere);  // the ranks finish their step and save; asked_elsewhere: on another machine
  virtual void stalled(const Stall& stall, double abort_seconds);
  virtual void moves_again();
};
std::string_view stopping_words(bool asked_elsewhere);
std::string stalled_words(const Stall& stall, double abort_seconds);
inline constexpr std::string_view moves_again_words = "the ranks are moving again.";

// Returns when no process of the job is left.
// `peers`: the other machines of the run; null: there are none.
Outcome run_job(const Job& job, Observer& observer, const StopWish& stop, Peers* peers = nullptr);

// The folder of a job's pages, for this user alone.
std::filesystem::path make_pages_folder(const std::string& job);
// Removes the pages of jobs whose launchers are gone; those of other users and of other containers' jobs stay.
void sweep_old_pages();

}  // namespace lockstep::launch
