// A move in three parts, each of which can be cut short: say what goes, move it, say that it is done.
#include "journal/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep::journal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view folder_prefix = "abandoned-";

fs::path mark_of(const fs::path& checkpoints) { return checkpoints / "abandoning.json"; }

std::optional<Abandoned> read_mark(const fs::path& checkpoints) {
  std::error_code error;
  const fs::path mark = mark_of(checkpoints);
  if (!fs::exists(mark, error)) return std::nullopt;
  const Json json = base::json_if_any(base::read_text(mark)).value_or(nullptr);
  if (!json.is_object() || !json.contains("into") || !json.contains("checkpoints")) {
    throw base::checkpoint_error("checkpoint",
                                 "{} is damaged. It names checkpoints that a run has turned away from; move those by hand into a folder of "
                                 "their own, then delete it.",
                                 mark.string());
  }
  return Abandoned{checkpoints / json["into"].get<std::string>(), json["checkpoints"].get<std::vector<std::string>>(),
                   json.value("best", std::string())};
}

fs::path free_folder(const fs::path& checkpoints) {
  for (int n = 1;; ++n) {
    const fs::path folder = checkpoints / fmt::format("{}{}", folder_prefix, n);
    if (!fs::exists(folder)) return folder;
  }
}

// A second name takes no room on a full disk; the run's next metrics.jsonl is a file of its own. Not worth failing for.
void keep_metrics(const fs::path& metrics, const fs::path& folder) {
  std::error_code error;
  const fs::path kept = folder / "metrics.jsonl";
  if (!fs::exists(metrics, error) || fs::exists(kept, error)) return;
  fs::create_hard_link(metrics, kept, error);
  if (error) fs::copy_file(metrics, kept, error);
  if (error) base::log_warning("could not keep {} as {}: {}", metrics.string(), kept.string(), error.message());
}

void move_all(base::FileSystem& files, const fs::path& checkpoints, const Abandoned& going, const fs::path& metrics) {
  files.create_directories(going.folder);
  files.sync_directory(checkpoints);  // before anything lies in a folder that a power cut could take back
  keep_metrics(metrics, going.folder);
  std::error_code none;
  for (const std::string& name : going.names) {
    if (fs::exists(checkpoints / name, none)) files.rename(checkpoints / name, going.folder / name);
  }
  files.sync_directory(going.folder);
  files.sync_directory(checkpoints);
  const std::string best = fs::read_symlink(checkpoints / "best", none).string();
  if (std::find(going.names.begin(), going.names.end(), best) != going.names.end()) link_best(checkpoints, going.best);
  files.remove_all(mark_of(checkpoints));
}

}  // namespace

std::set<std::string> leaving(const fs::path& checkpoints) {
  const auto going = read_mark(checkpoints);
  return going ? std::set(going->names.begin(), going->names.end()) : std::set<std::string>();
}

Abandoned abandon(base::FileSystem& files, const fs::path& checkpoints, std::vector<std::string> names, const std::string& best,
                  const fs::path& metrics) {
  if (names.empty()) return {};
  const Abandoned going{free_folder(checkpoints), std::move(names), best};
  const Json mark = {{"into", going.folder.filename().string()}, {"checkpoints", going.names}, {"best", best}};
  base::write_text_atomically(files, mark_of(checkpoints), mark.dump(1) + "\n");
  files.sync_directory(checkpoints);
  move_all(files, checkpoints, going, metrics);
  return going;
}

std::optional<Abandoned> finish_abandoning(base::FileSystem& files, const fs::path& checkpoints, const fs::path& metrics) {
  const auto going = read_mark(checkpoints);
  if (going) move_all(files, checkpoints, *going, metrics);
  return going;
}

std::optional<fs::path> find_abandoned(const fs::path& checkpoints, const std::string& name) {
  std::optional<fs::path> found;
  std::int64_t newest = -1;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoints, error)) {
    const std::string folder = entry.path().filename().string();
    if (!folder.starts_with(folder_prefix) || !fs::exists(entry.path() / name, error)) continue;
    const auto number = base::parse_integer(std::string_view(folder).substr(folder_prefix.size()));
    if (number && *number > newest) {
      newest = *number;
      found = entry.path() / name;
    }
  }
  return found;
}

void link_best(const fs::path& checkpoints, const std::string& name) {
  const fs::path link = checkpoints / "best", fresh = checkpoints / "best.new";
  std::error_code error;
  fs::remove(fresh, error);
  error.clear();
  if (name.empty()) {
    fs::remove(link, error);
  } else {
    fs::create_directory_symlink(name, fresh, error);
    if (!error) fs::rename(fresh, link, error);
  }
  if (error) base::log_warning("could not link {} to {}: {}", link.string(), name, error.message());
}

}  // namespace lockstep::journal
