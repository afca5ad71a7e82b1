// Workers with another task than training (measuring, checking): started, watched and ended as the ranks of a run are, in a temporary
// folder.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "front/job/setup.h"
#include "front/launch/meet/messages.h"

namespace lockstep::job {

struct Errand {
  std::string verb;                         // of the workers: "bench-comm"
  std::vector<std::string> arguments = {};  // behind --config and --result, which they all take
  std::string remark = {};                  // what machine 0 shall read of this machine
};
struct ErrandListener {
  std::function<void(const std::string&)> result = {};  // a line that the workers wrote, as it comes
  std::function<void(std::string_view)> say = {};       // for people
  // On machine 0, once all are here.
  std::function<void(std::span<const launch::meet::Facts>)> met = {};
};

// Returns when no process of it is left. Prints nothing. The folder, with the ranks' logs, stays where it failed.
launch::Outcome run_errand(Setup& setup, const launch::Environment& environment, const Errand& errand, const ErrandListener& listener,
                           const launch::StopWish& stop);

}  // namespace lockstep::job
