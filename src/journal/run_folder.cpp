// Names of files and folders.
#include "journal/run_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "journal/timeline.h"

namespace lockstep::journal {

std::filesystem::path RunFolder::rank_log(int rank) const { return rank_logs() / fmt::format("{}.log", rank); }

std::filesystem::path checkpoint_folder(const std::filesystem::path& checkpoints, std::int64_t step) {
  return checkpoints / fmt::format("step-{:06}", step);
}

std::vector<CheckpointEntry> list_checkpoints(const std::filesystem::path& checkpoints) {
  std::vector<CheckpointEntry> found;
  std::error_code error;
  const std::set<std::string> gone = leaving(checkpoints);
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step-") || gone.contains(name)) continue;
    const auto step = base::parse_integer(std::string_view(name).substr(5));  // "step-000120.partial" has none
    if (step && std::filesystem::exists(entry.path() / "manifest.json", error)) found.push_back({*step, entry.path()});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

std::filesystem::path pages_folder(std::string_view job) {
  // Memory where there is such a place, so that a full disk cannot stop a page from being written.
  const bool memory = ::access("/dev/shm", W_OK) == 0;
  const std::filesystem::path root = memory ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path();
  return root / fmt::format("lockstep-{}-{}", ::getuid(), job);
}

std::filesystem::path page_path(std::string_view job, int rank) { return pages_folder(job) / fmt::format("{}.page", rank); }

}  // namespace lockstep::journal
