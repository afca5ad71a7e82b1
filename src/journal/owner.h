// Which run a folder of checkpoints belongs to, where trainer.checkpoint_dir puts them outside the run folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/files.h"
#include "journal/run_folder.h"

namespace lockstep::journal {

// The run a folder of checkpoints belongs to, as its owner.json says.
struct Owner {
  std::filesystem::path run;  // the run folder, absolute, as it was when it last trained
  std::string id;
};
std::optional<Owner> owner_of(const std::filesystem::path& checkpoints);

// What tells a run from any other, also when its folder is moved: RUN/run_id, made where there is none.
std::string run_id(base::FileSystem& files, const RunFolder& run);

// Makes `checkpoints` this run's own, or throws UserError(usage) where it belongs to another run: by its owner.json, because it is inside
// another run folder, or because it holds checkpoints that this run does not go on from (`resumes` is false). The run's owner alone calls
// it. Does nothing where the checkpoints lie in the run folder.
void claim_checkpoints(base::FileSystem& files, const RunFolder& run, const std::filesystem::path& checkpoints, bool resumes);

}  // namespace lockstep::journal
