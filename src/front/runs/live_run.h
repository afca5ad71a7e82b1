// A run while it goes on: its folder's files and its ranks' pages, followed.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "front/runs/run_view.h"
#include "journal/page.h"
#include "journal/parts.h"
#include "journal/tail.h"

namespace lockstep::runs {

// What a machine of the run said last (docs/monitoring.md).
struct MachineView {
  nlohmann::ordered_json machine;    // its "machine" line
  nlohmann::ordered_json last;       // its last sample
  nlohmann::ordered_json straggler;  // the last one it named, and when; null: none
};

// Reads, and writes nothing. One thread.
class LiveRun {
 public:
  explicit LiveRun(std::filesystem::path folder);
  // Takes in what came since the last call.
  void poll();

  const RunView& view() const { return view_; }
  const std::vector<journal::PartSeconds>& ranks() const { return ranks_; }  // of a step, by rank
  const std::optional<journal::Straggler>& straggler() const { return straggler_; }
  const std::map<std::string, MachineView>& machines() const { return machines_; }  // by file
  // Pages of ranks on this machine, while they live.
  const std::vector<journal::PageView>& pages() const { return pages_; }
  // Rank 0's last lines, or another's.
  std::vector<std::string> log(int rank, int lines) const;

 private:
  struct MachineFile {
    std::unique_ptr<journal::Tail> tail;
  };
  void poll_machines();
  void read_pages();
  void read_last_step();

  std::filesystem::path folder_;
  journal::Tail metrics_;
  MetricsScan scan_;
  RunView view_;
  std::vector<journal::PartSeconds> ranks_;
  std::optional<journal::Straggler> straggler_;
  std::map<std::string, MachineFile> files_;
  std::map<std::string, MachineView> machines_;
  std::string job_;  // whose pages are open
  std::map<int, std::unique_ptr<journal::PageReader>> readers_;
  std::vector<journal::PageView> pages_;
};

}  // namespace lockstep::runs
