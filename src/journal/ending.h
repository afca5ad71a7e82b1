// How the last start of a run ended: end.json in the run folder, written by its launcher, for whoever shows the run later.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "journal/run_folder.h"

namespace lockstep::journal {

struct Ending {
  std::string status;  // "complete", "stopped", "ended" (at once, by a second signal), "failed"
  int exit_code = 0;
  std::optional<int> rank = {};  // the first to die
  std::string error = {};        // in one line
  std::string report = {};       // all that a person should read: who, where, why, what to try
  std::string resume = {};       // the command that goes on with the run
  double seconds = 0;
  std::int64_t last_step = 0;
  std::string time = {};  // UTC
};

// UserError(checkpoint) where it cannot be written. A start that begins removes what the one before left.
void write_ending(const RunFolder& folder, const Ending& ending);
void remove_ending(const RunFolder& folder);
// Nothing where the launcher did not come to it, because it was killed or is still at work, or where the file is not ours.
std::optional<Ending> read_ending(const RunFolder& folder);

}  // namespace lockstep::journal
