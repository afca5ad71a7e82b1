// Opens pages as they appear and cleans up after the job.
#include "front/launch/pages.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "front/launch/launch.h"
#include "record/run_folder.h"

namespace lockstep::launch {

namespace fs = std::filesystem;

bool is_alive(pid_t pid) { return ::kill(pid, 0) == 0 || errno != ESRCH; }

Pages::Pages(std::string job, std::vector<int> ours, bool foreign)
    : folder_(record::pages_folder(job)), job_(std::move(job)), ours_(std::move(ours)), foreign_(foreign) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw base::machine_error("launch", "cannot create {} for the ranks' pages: {}.", folder_.string(), error.message());
  fs::permissions(folder_, fs::perms::owner_all, error);
  for (const int rank : ours_) {
    fs::remove(record::page_path(job_, rank), error);
    readers_.emplace(rank, std::make_unique<record::PageReader>(record::page_path(job_, rank)));
  }
}

Pages::~Pages() {
  std::error_code error;
  if (!foreign_) {
    fs::remove_all(folder_, error);
    return;
  }
  // The others' launchers may not have seen yet how our rank ended: the last one to leave cleans up.
  for (const auto& view : read()) {
    if (!is_ours(static_cast<int>(view.rank)) && is_alive(static_cast<pid_t>(view.pid))) return;
  }
  for (const auto& [rank, reader] : readers_) fs::remove(record::page_path(job_, rank), error);
  fs::remove(folder_, error);
}

void Pages::find_others() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().extension() != ".page") continue;
    const auto rank = base::parse_integer(entry.path().stem().string());
    if (rank && !readers_.contains(static_cast<int>(*rank))) {
      readers_.emplace(static_cast<int>(*rank), std::make_unique<record::PageReader>(entry.path()));
    }
  }
}

const std::vector<record::PageView>& Pages::read() {
  if (foreign_) find_others();
  views_.clear();
  for (auto& [rank, reader] : readers_) {
    if (auto view = reader->read()) views_.push_back(std::move(*view));
  }
  return views_;
}

const record::PageView* Pages::of(int rank) const {
  const auto found = std::find_if(views_.begin(), views_.end(), [&](const auto& view) { return static_cast<int>(view.rank) == rank; });
  return found == views_.end() ? nullptr : &*found;
}

bool Pages::is_ours(int rank) const { return std::find(ours_.begin(), ours_.end(), rank) != ours_.end(); }

void sweep_old_pages() {
  // Folders are named lockstep-<uid>-<pid>-<start>; those of foreign jobs carry a hash instead and are swept by their ranks.
  const fs::path mine = record::pages_folder("");
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(mine.parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(mine.filename().string())) continue;
    const auto parts = base::split(name, '-');
    const auto pid = parts.size() == 4 ? base::parse_integer(parts[2]) : std::nullopt;
    std::error_code ignored;
    if (pid && !is_alive(static_cast<pid_t>(*pid))) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace lockstep::launch
