// Follows metrics.jsonl, monitor/ and pages.
#include "front/runs/live_run.h"

#include "base/file/last_name.h"
#include "base/json.h"
#include "base/text.h"
#include "journal/run_folder.h"

namespace lockstep::runs {

namespace fs = std::filesystem;

LiveRun::LiveRun(fs::path folder) : folder_(std::move(folder)), metrics_(journal::RunFolder{folder_}.metrics()) {
  view_.folder = folder_;
  view_.name = base::last_name(folder_);
}

void LiveRun::poll() {
  const auto update = metrics_.poll();
  if (update.replaced) scan_.begin_anew();
  for (const std::string& line : update.lines) scan_.line(line);
  scan_.fill(view_);
  view_.state = state_of(folder_, scan_.end_reason());
  view_.trouble = trouble_of(folder_, view_.state);
  if (!update.lines.empty()) read_last_step();
  poll_machines();
  read_pages();
}

void LiveRun::read_last_step() {
  const auto json = base::json_if_any(scan_.last_step());
  if (!json || !json->is_object() || !json->contains("rank_seconds")) return;
  std::vector<journal::PartSeconds> ranks;
  for (const journal::Part part : journal::all_parts) {
    const auto list = (*json)["rank_seconds"].find(std::string(journal::name_of(part)));
    if (list == (*json)["rank_seconds"].end() || !list->is_array()) continue;
    if (ranks.size() < list->size()) ranks.resize(list->size());
    for (std::size_t rank = 0; rank < list->size(); ++rank) {
      if ((*list)[rank].is_number()) ranks[rank][static_cast<std::size_t>(part)] = (*list)[rank].get<double>();
    }
  }
  ranks_ = std::move(ranks);
  straggler_ = journal::find_straggler(ranks_);
}

void LiveRun::poll_machines() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(journal::RunFolder{folder_}.monitor(), error)) {
    if (entry.path().extension() != ".jsonl") continue;
    MachineFile& file = files_[entry.path().filename().string()];
    if (!file.tail) file.tail = std::make_unique<journal::Tail>(entry.path());
  }
  for (auto& [name, file] : files_) {
    const auto update = file.tail->poll();
    MachineView& view = machines_[name];
    std::string last;  // of the samples only the last counts
    for (const std::string& line : update.lines) {
      if (!line.starts_with("{\"event\":")) {
        last = line;
        continue;
      }
      auto json = base::json_if_any(line).value_or(nullptr);
      if (!json.is_object()) continue;
      const std::string event = json.value("event", "");
      if (event == "machine")
        view = {.machine = std::move(json), .last = nullptr, .straggler = nullptr}, last.clear();
      else if (event == "straggler")
        view.straggler = std::move(json);
    }
    if (!last.empty()) view.last = base::json_if_any(last).value_or(nullptr);
  }
}

void LiveRun::read_pages() {
  const auto first = machines_.find("machine-0.jsonl");
  const std::string job = first == machines_.end() || !first->second.machine.is_object() ? "" : first->second.machine.value("job", "");
  // A name from a file: it must not lead anywhere else.
  const bool sound = !job.empty() && job.find('/') == std::string::npos;
  if (job != job_) readers_.clear();
  job_ = job;
  pages_.clear();
  if (!sound || view_.state != State::training) return;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(journal::pages_folder(job), error)) {
    const auto rank = base::parse_integer(entry.path().stem().string());
    if (entry.path().extension() != ".page" || !rank || readers_.contains(static_cast<int>(*rank))) continue;
    readers_[static_cast<int>(*rank)] = std::make_unique<journal::PageReader>(entry.path());
  }
  for (auto& [rank, reader] : readers_) {
    if (auto page = reader->read(); page && page->alive) pages_.push_back(std::move(*page));
  }
}

std::vector<std::string> LiveRun::log(int rank, int lines) const {
  return journal::last_lines(journal::RunFolder{folder_}.rank_log(rank), lines);
}

}  // namespace lockstep::runs
