// The commands that do what the form says, by launcher, and whether this page can do it itself.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "front/launch/other_launchers.h"

namespace lockstep::serve {

// Who starts the ranks, and how many there are.
struct Launching {
  std::string launcher = "lockstep";  // or one of launch::other_launchers
  launch::RanksToStart ranks = {};
  int node_rank = 0;  // of this machine, where lockstep starts several
};
// UserError where it is none.
void expect_launcher(const std::string& name);

// Whether this setting is for our own launcher: another one is told so in words of its own.
bool is_for_own_launcher(const std::string& key);

// {"commands": [{"where": "on machine 0", "command": ...}, ...], "starts_here": true, "start_note": what Start does, or why it cannot}
nlohmann::ordered_json commands_of(const std::vector<std::string>& train, const Launching& launching);

}  // namespace lockstep::serve
