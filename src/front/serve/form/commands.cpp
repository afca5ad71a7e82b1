// Words before the command, and sentences beside it.
#include "front/serve/form/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "front/job/naming.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> joined(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Json of_another(const std::vector<std::string>& own, const Launching& launching) {
  const std::string& launcher = launching.launcher;
  const bool several = launching.ranks.machines > 1;
  const std::string command = base::shell_line(joined(launch::words_for_launcher(launcher, launching.ranks), own));
  const char* where = launcher == "srun" ? "in a job's shell, or an sbatch script" : "in a shell";
  Json commands = Json::array({{{"where", several && launcher == "torchrun" ? "on machine 0; on the others with their --node-rank" : where},
                                {"command", command}}});
  return {
      {"commands", commands},
      {"starts_here", false},
      {"start_note", fmt::format("{} starts the ranks itself, so Start cannot: copy the command. The run shows up here when it begins{}.",
                                 launcher, several ? ", if --output is a folder that all machines share" : "")}};
}

Json of_several(const std::vector<std::string>& own, const Launching& launching) {
  const bool here = launching.node_rank == 0;
  auto others = own;
  if (here) others.emplace_back("parallel.node_rank=1");
  Json commands = Json::array();
  if (here) commands.push_back({{"where", "on machine 0"}, {"command", base::shell_line(own)}});
  commands.push_back({{"where", here ? "on the others, with their number; machine 0 tells the secret" : "here; machine 0 tells the secret"},
                      {"command", "LOCKSTEP_SECRET=... " + base::shell_line(others)}});
  return {{"commands", commands},
          {"starts_here", here},
          {"start_note", here ? "Start begins machine 0 here. It waits for the others; the run's page then shows the line that starts them."
                              : "Machine 0 prints the line, with its secret, that starts this one: copy it from there."}};
}

}  // namespace

void expect_launcher(const std::string& name) {
  if (name != "lockstep" && !launch::is_other_launcher(name))
    throw base::usage_error("ui", "{} is no launcher: lockstep, {} are.", name.substr(0, 80), fmt::join(launch::other_launchers, ", "));
}

bool is_for_own_launcher(const std::string& key) {
  constexpr std::string_view keys[] = {"parallel.ranks", "parallel.nnodes", "parallel.node_rank", "parallel.master_addr",
                                       "parallel.master_port"};
  return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
}

Json commands_of(const std::vector<std::string>& train, const Launching& launching) {
  const std::vector<std::string> own = joined({"lockstep"}, train);
  if (launching.launcher != "lockstep") return of_another(own, launching);
  if (launching.ranks.machines > 1) return of_several(own, launching);
  return {{"commands", Json::array({{{"where", ""}, {"command", base::shell_line(own)}}})}, {"starts_here", true}, {"start_note", ""}};
}

}  // namespace lockstep::serve
