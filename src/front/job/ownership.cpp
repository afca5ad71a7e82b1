// Leases first, then a second look at what the folders hold: between the first look and the lease another run may have ended there.
#include "front/job/ownership.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "base/file/refusal.h"
#include "base/files.h"
#include "front/job/naming.h"
#include "journal/owner.h"

namespace lockstep::job {
namespace {

namespace fs = std::filesystem;

// Making a folder is atomic: of two runs that start in the same second, one gets the next name.
void reserve_new_name(Setup& setup) {
  config::RunConfig& config = setup.settings.values;
  base::real_files().create_directories(config.output);
  const std::string wanted = config.name;
  std::error_code error;
  for (int n = 2; !fs::create_directory(fs::path(config.output) / config.name, error) && !error; ++n)
    config.name = fmt::format("{}-{}", wanted, n);
  if (error) {
    const fs::path folder = fs::path(config.output) / config.name;
    throw base::checkpoint_error("files", "cannot create the folder {}: {}. Choose a folder you may write to with --output.",
                                 folder.string(), base::why_refused(folder, error.value(), base::Access::write));
  }
  setup.job.folder.root = fs::path(config.output) / config.name;
  setup.plan.folder = setup.job.folder.root.string();
}

// What launchers of this run met by and were killed before they could remove. Whoever holds the lease knows that they are gone.
void remove_traces_of_meetings(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name == ".secret" || name.starts_with(".meeting-")) fs::remove(entry.path(), ignored);
  }
}

}  // namespace

Ownership::Ownership(Setup& setup, const std::function<void(std::string_view)>& say) {
  const config::RunConfig& config = setup.settings.values;
  made_.add_missing(config.output);
  if (setup.new_name) {
    reserve_new_name(setup);
    made_.paths.push_back(setup.job.folder.root);
  } else {
    made_.add_missing(setup.job.folder.root);
  }
  const journal::RunFolder& run = setup.job.folder;
  run_.emplace(run.root, journal::Lease::Options{.what = "the run folder", .fix = "another --name", .say = say});
  refuse_to_overwrite(config);
  const fs::path checkpoints = checkpoints_of(config);
  journal::claim_checkpoints(base::real_files(), run, checkpoints, !config.checkpoint.resume.empty());
  base::expect_writable_folder(checkpoints);  // or it would come out when the first one is due
  remove_traces_of_meetings(run.root);
  if (config.trainer.checkpoint_dir.empty()) return;
  checkpoints_.emplace(checkpoints,
                       journal::Lease::Options{.what = "the checkpoint folder", .fix = "another trainer.checkpoint_dir", .say = say});
  remove_traces_of_meetings(checkpoints);
}

void Ownership::NewFolders::add_missing(const fs::path& folder) {
  fs::path part;
  for (const fs::path& name : folder) {
    part /= name;
    std::error_code error;
    if (fs::status(part, error).type() == fs::file_type::not_found) paths.push_back(part);
  }
}

Ownership::NewFolders::~NewFolders() {
  std::error_code not_empty;
  for (auto folder = paths.rbegin(); folder != paths.rend(); ++folder) fs::remove(*folder, not_empty);
}

std::optional<std::string> Ownership::lost_to() const {
  if (auto lost = run_->lost_to()) return lost;
  return checkpoints_ ? checkpoints_->lost_to() : std::nullopt;
}

}  // namespace lockstep::job
