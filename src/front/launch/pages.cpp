// Opens pages as they appear and cleans up after the job.
#include "front/launch/pages.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <tuple>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "front/launch/launch.h"
#include "journal/run_folder.h"

namespace lockstep::launch {

namespace fs = std::filesystem;

namespace {

constexpr double look_every_s = 1.0;
constexpr double folder_in_the_making_s = 60;

fs::path lock_path(const fs::path& folder, int rank) { return folder / fmt::format("{}.lock", rank); }

std::int64_t age_s(const fs::path& path) {
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  return error ? 0 : std::chrono::duration_cast<std::chrono::seconds>(fs::file_time_type::clock::now() - written).count();
}

// True where every launcher that has ever locked the folder is gone. A folder without locks proves nothing.
bool nobody_holds(const fs::path& folder, std::vector<base::FileLock>& held) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".lock") continue;
    auto lock = base::FileLock::take(entry.path());
    if (!lock) return false;
    held.push_back(std::move(*lock));
  }
  return !held.empty();
}

}  // namespace

journal::ProcessState look_at_process(pid_t pid) {
  using journal::ProcessState;
  const auto first = base::process_stat(pid);
  if (first.empty() || first[0] == "Z" || first[0] == "X") return ProcessState::gone;
  return first[0] == "T" || first[0] == "t" ? ProcessState::stopped : ProcessState::running;
}

std::filesystem::path make_pages_folder(const std::string& job) {
  const fs::path folder = journal::pages_folder(job);
  if (base::make_private_folder(folder)) return folder;
  throw base::machine_error("launch", "cannot make {} for the ranks' pages: it belongs to another user, or {} cannot be written to.",
                            folder.string(), folder.parent_path().string());
}

Pages::Pages(std::string job, std::vector<int> ours, bool foreign)
    : folder_(journal::pages_folder(job)),
      job_(std::move(job)),
      ours_(std::move(ours)),
      foreign_(foreign),
      start_ns_(base::now_ns()),
      lock_(lock_folder()) {
  std::error_code error;
  for (const int rank : ours_) {
    fs::remove(journal::page_path(job_, rank), error);
    readers_.emplace(rank, std::make_unique<journal::PageReader>(journal::page_path(job_, rank)));
  }
}

// Somebody who sweeps old folders may take this one away, or hold its lock, for a moment.
base::FileLock Pages::lock_folder() const {
  constexpr double patience_s = 1;
  for (;;) {
    make_pages_folder(job_);
    base::FileLock::Refusal why;
    if (auto lock = base::FileLock::take(lock_path(folder_, ours_.front()), &why)) return std::move(*lock);
    if (base::seconds_since(start_ns_) > patience_s) {
      if (why == base::FileLock::Refusal::held) {
        throw base::usage_error("launch",
                                "another lockstep runs rank {} of this job already. Start every rank once, or choose another MASTER_PORT "
                                "for the second job.",
                                ours_.front());
      }
      throw base::machine_error("launch", "cannot lock {}: {}.", lock_path(folder_, ours_.front()).string(), std::strerror(errno));
    }
    ::usleep(5000);
  }
}

Pages::~Pages() {
  std::error_code error;
  if (!foreign_) {
    fs::remove_all(folder_, error);
    return;
  }
  for (const int rank : ours_) fs::remove(lock_path(folder_, rank), error);
  // The others' launchers may not have seen yet how our rank ended: the last one to leave cleans up.
  for (const auto& view : read()) {
    if (!is_ours(static_cast<int>(view.rank)) && view.alive) return;
  }
  for (const auto& [rank, reader] : readers_) fs::remove(journal::page_path(job_, rank), error);
  fs::remove(folder_, error);
}

void Pages::find_others() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().extension() != ".page") continue;
    const auto rank = base::parse_integer(entry.path().stem().string());
    if (rank && !readers_.contains(static_cast<int>(*rank))) {
      readers_.emplace(static_cast<int>(*rank), std::make_unique<journal::PageReader>(entry.path()));
    }
  }
}

const std::vector<journal::PageView>& Pages::read() {
  if (foreign_) find_others();
  views_.clear();
  for (auto& [rank, reader] : readers_) {
    auto view = reader->read();
    if (view && !(foreign_ && left_by_an_earlier_job(*view))) views_.push_back(std::move(*view));
  }
  look_at_processes();
  return views_;
}

// Starts by hand at one port, and a requeued step, have one name every time. Whoever did nothing after we came, and is gone, was no rank
// of this job.
bool Pages::left_by_an_earlier_job(const journal::PageView& page) {
  const int rank = static_cast<int>(page.rank);
  if (is_ours(rank)) return false;
  const auto key = std::pair(rank, page.created_ns);
  if (page.alive) seen_alive_.insert(key);
  if (seen_alive_.contains(key)) return false;
  return page.progress_ns < start_ns_ || page.progress_ns > base::now_ns();  // in the future: the clock began anew, as the machine did
}

void Pages::look_at_processes() {
  if (base::seconds_since(looked_ns_) >= look_every_s) {
    looked_ns_ = base::now_ns();
    for (const auto& view : views_) look_at(view);
  }
  for (auto& view : views_) {
    const auto look = looks_.find(view.pid);
    if (look != looks_.end()) std::tie(view.process, view.process_since_ns) = std::pair(look->second.state, look->second.since_ns);
    if (!view.alive) view.process = journal::ProcessState::gone;
  }
}

void Pages::look_at(const journal::PageView& view) {
  using journal::ProcessState;
  const auto pid = static_cast<pid_t>(view.pid);
  ProcessState state = view.pid_namespace == base::pid_namespace() ? look_at_process(pid) : ProcessState::running;
  Look& look = looks_[view.pid];
  std::int64_t since_ns = looked_ns_;
  // Where a disk works, threads that wait for it run now and then; where it does not answer, one of them sleeps on and on. To look at
  // all threads costs a file each.
  std::map<std::pair<pid_t, std::uint64_t>, std::int64_t> sleeps;
  const bool idle = base::seconds_since(view.progress_ns) > look_every_s;
  if (state == ProcessState::running && idle && view.pid_namespace == base::pid_namespace()) {
    for (const base::DeepSleep& sleep : base::deep_sleeps(pid)) {
      const std::pair key(sleep.thread, sleep.switches);
      const auto known = look.sleeps.find(key);
      since_ns = std::min(since_ns, sleeps[key] = known == look.sleeps.end() ? looked_ns_ : known->second);
      state = ProcessState::uninterruptible;
    }
  }
  look.sleeps = std::move(sleeps);
  const bool goes_on = state == look.state && state != ProcessState::uninterruptible && look.since_ns != 0;
  look.state = state;
  if (!goes_on) look.since_ns = since_ns;
}

const journal::PageView* Pages::of(int rank) const {
  const auto found = std::find_if(views_.begin(), views_.end(), [&](const auto& view) { return static_cast<int>(view.rank) == rank; });
  return found == views_.end() ? nullptr : &*found;
}

bool Pages::is_ours(int rank) const { return std::find(ours_.begin(), ours_.end(), rank) != ours_.end(); }

void sweep_old_pages() {
  const fs::path mine = journal::pages_folder("");
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(mine.parent_path(), error)) {
    const fs::path& folder = entry.path();
    // A launcher makes its folder first and locks it a moment later. So it does with the secret that ranks started by hand share.
    if (!folder.filename().string().starts_with(mine.filename().string()) || age_s(folder) < folder_in_the_making_s) continue;
    std::vector<base::FileLock> held;
    std::error_code ignored;
    if (folder.extension() == ".secret" && entry.is_regular_file(ignored)) {
      if (base::FileLock::take(folder)) fs::remove(folder, ignored);
    } else if (base::make_private_folder(folder) && nobody_holds(folder, held)) {
      fs::remove_all(folder, ignored);
    }
  }
}

}  // namespace lockstep::launch
