// Reads every folder of pages of this user, and what /proc says of their writers.
#include "front/launch/living.h"

#include <algorithm>
#include <map>

#include "base/process.h"
#include "base/text.h"
#include "front/launch/pages.h"
#include "journal/run_folder.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> words_of(pid_t pid, std::string_view file) { return base::split(base::process_file(pid, file), '\0'); }

std::string value_of(const std::vector<std::string>& variables, std::string_view name) {
  for (const std::string& variable : variables) {
    if (variable.starts_with(name) && variable.size() > name.size() && variable[name.size()] == '=')
      return variable.substr(name.size() + 1);
  }
  return {};
}

void look_at_its_process(LivingRank& rank) {
  if (rank.page.pid_namespace != base::pid_namespace()) return;  // another container's numbers mean others here
  const auto pid = static_cast<pid_t>(rank.page.pid);
  rank.page.process = rank.page.alive ? look_at_process(pid) : journal::ProcessState::gone;
  const fs::path process = fs::path("/proc") / std::to_string(pid);
  const std::vector<std::string> arguments = words_of(pid, "cmdline"), variables = words_of(pid, "environ");
  for (std::size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] != "--run") continue;
    std::error_code error;
    const fs::path folder = fs::read_symlink(process / "cwd", error);
    rank.run = (error ? fs::path() : folder) / arguments[i + 1];
  }
  rank.device = value_of(variables, "LOCKSTEP_DEVICE");
  rank.visible_devices = value_of(variables, "CUDA_VISIBLE_DEVICES");
  const auto number = [&](std::string_view name) -> std::optional<int> {
    const auto value = base::parse_integer(value_of(variables, name));
    return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
  };
  rank.local_rank = number("LOCAL_RANK");
  rank.world_size = number("WORLD_SIZE");
}

}  // namespace

std::vector<LivingRank> living_ranks() {
  const fs::path mine = journal::pages_folder("");
  std::map<std::string, std::vector<LivingRank>> jobs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(mine.parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (!name.starts_with(mine.filename().string()) || !entry.is_directory(ignored)) continue;
    for (const auto& file : fs::directory_iterator(entry.path(), ignored)) {
      if (file.path().extension() != ".page") continue;
      auto page = journal::PageReader(file.path()).read();
      const std::string job = name.substr(mine.filename().string().size());
      if (page) jobs[job].push_back({.job = job, .page = std::move(*page)});
    }
  }
  std::vector<LivingRank> living;
  for (auto& [job, ranks] : jobs) {
    if (std::none_of(ranks.begin(), ranks.end(), [](const LivingRank& rank) { return rank.page.alive; })) continue;
    std::sort(ranks.begin(), ranks.end(), [](const LivingRank& a, const LivingRank& b) { return a.page.rank < b.page.rank; });
    for (LivingRank& rank : ranks) {
      look_at_its_process(rank);
      living.push_back(std::move(rank));
    }
  }
  return living;
}

}  // namespace lockstep::launch
