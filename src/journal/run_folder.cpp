// Names of files and folders.
#include "journal/run_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "journal/timeline.h"

namespace lockstep::journal {

std::filesystem::path RunFolder::rank_log(int rank) const { return rank_logs() / fmt::format("{}.log", rank); }

std::filesystem::path checkpoint_folder(const std::filesystem::path& checkpoints, std::int64_t step) {
  return checkpoints / fmt::format("step-{:06}", step);
}

std::optional<StepName> step_named(std::string_view name) {
  constexpr std::string_view prefix = "step-";
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const std::size_t digits_end = std::min(name.find_first_not_of("0123456789"), name.size());
  StepName found{.ending = std::string(name.substr(digits_end))};
  const auto [end, error] = std::from_chars(name.data(), name.data() + digits_end, found.step);
  if (error != std::errc()) return std::nullopt;  // no digits, or too many
  return found;
}

std::vector<CheckpointEntry> list_checkpoints(const std::filesystem::path& checkpoints) {
  std::vector<CheckpointEntry> found;
  std::error_code error;
  const std::set<std::string> gone = leaving(checkpoints);
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints, error)) {
    const std::string name = entry.path().filename().string();
    const auto named = step_named(name);
    if (!named || !named->ending.empty() || gone.contains(name)) continue;
    if (std::filesystem::exists(entry.path() / "manifest.json", error)) found.push_back({named->step, entry.path()});
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
