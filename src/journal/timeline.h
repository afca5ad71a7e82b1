// The living timeline of a run: going back to an earlier checkpoint sets aside those that came after it.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/files.h"

namespace lockstep::journal {

// Checkpoints that a run turns away from move from FOLDER/step-N to FOLDER/abandoned-K/step-N, with metrics.jsonl as it was until then.
// FOLDER/abandoning.json, written first, names them: from that moment on they are off the timeline, whatever has moved so far, and the
// next start finishes a move that a crash cut short. One process at a time may move, the one that owns the run.
struct Abandoned {
  std::filesystem::path folder;    // FOLDER/abandoned-K
  std::vector<std::string> names;  // of the folders in it: "step-000008"
  std::string best;                // the checkpoint that FOLDER/best shall point to where it pointed to one of these; empty: none
};

// Folders that still stand in `checkpoints` and are off the timeline.
std::set<std::string> leaving(const std::filesystem::path& checkpoints);

// `metrics`: the run's metrics.jsonl. Nothing to set aside: nothing is done. Errors are UserError(ExitCode::checkpoint).
Abandoned abandon(base::FileSystem& files, const std::filesystem::path& checkpoints, std::vector<std::string> names,
                  const std::string& best, const std::filesystem::path& metrics);
std::optional<Abandoned> finish_abandoning(base::FileSystem& files, const std::filesystem::path& checkpoints,
                                           const std::filesystem::path& metrics);

// Where a checkpoint that was set aside lies now; the newest of several.
std::optional<std::filesystem::path> find_abandoned(const std::filesystem::path& checkpoints, const std::string& name);

// FOLDER/best becomes a link to `name`, or goes where that is empty. Relative, so that a run folder can be moved.
void link_best(const std::filesystem::path& checkpoints, const std::string& name);

}  // namespace lockstep::journal
