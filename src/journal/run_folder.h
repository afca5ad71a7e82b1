// Where everything lies in a run folder, and where the ranks' pages lie while it runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::journal {

struct RunFolder {
  std::filesystem::path root;  // runs/NAME

  std::filesystem::path config() const { return root / "config.yaml"; }
  std::filesystem::path metrics() const { return root / "metrics.jsonl"; }
  std::filesystem::path control() const { return root / "control"; }  // wishes (control.h)
  std::filesystem::path summary() const { return root / "summary.json"; }
  std::filesystem::path monitor() const { return root / "monitor"; }  // devices and processes, a file a machine (docs/monitoring.md)
  std::filesystem::path rank_logs() const { return root / "ranks"; }
  std::filesystem::path rank_log(int rank) const;
  std::filesystem::path checkpoints() const { return root / "checkpoints"; }
};

std::filesystem::path checkpoint_folder(const std::filesystem::path& checkpoints, std::int64_t step);  // step-000120
// A name of that form and what stands behind it, "step-000120.partial", read back.
struct StepName {
  std::int64_t step = 0;
  std::string ending = {};  // ".partial"; empty for a whole checkpoint
};
std::optional<StepName> step_named(std::string_view name);

struct CheckpointEntry {
  std::int64_t step;
  std::filesystem::path path;
};
// The whole checkpoints of a folder's living timeline (timeline.h), oldest first: named step-N, with a manifest. Whether their bytes are
// sound is for the reader to check.
std::vector<CheckpointEntry> list_checkpoints(const std::filesystem::path& checkpoints);

// Pages of one job on this machine. `job` is a name all its local ranks agree on.
std::filesystem::path pages_folder(std::string_view job);
std::filesystem::path page_path(std::string_view job, int rank);

}  // namespace lockstep::journal
