// What a run must own before it writes anything: its folder, and the folder of its checkpoints where that is elsewhere.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "front/job/setup.h"
#include "journal/lease.h"

namespace lockstep::job {

// Held while the run lasts. Only the launcher that rank 0 belongs to has one.
class Ownership {
 public:
  // A run that has no name of its own yet gets one that nobody else has taken meanwhile: `setup` says which. UserError(usage) where
  // another process has the run, where the folders hold what would be overwritten, or where the checkpoints are another run's.
  Ownership(Setup& setup, const std::function<void(std::string_view)>& say);

  // Why the run must end at once and write nothing more: someone else owns one of the folders now.
  std::optional<std::string> lost_to() const;
  // By which workers know that the run is still theirs to write.
  const std::string& token() const { return run_->token(); }

 private:
  // Folders that were not there before, the outermost first: a run that wrote nothing leaves none.
  struct NewFolders {
    std::vector<std::filesystem::path> paths;
    void add_missing(const std::filesystem::path& folder);  // it and those around it, as far as they are not there
    ~NewFolders();
  };
  NewFolders made_;
  std::optional<journal::Lease> run_, checkpoints_;  // go before the folders do
};

}  // namespace lockstep::job
