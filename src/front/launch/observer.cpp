// What an observer hears in words that it does not take up otherwise.
#include <fmt/format.h>

#include "base/text.h"
#include "front/launch/launch.h"

namespace lockstep::launch {

void Observer::rank_started(const LocalRank&, pid_t) {}
void Observer::stopping(bool asked_elsewhere) { say(stopping_words(asked_elsewhere)); }
void Observer::stalled(const Stall& stall, double abort_seconds) { say(stalled_words(stall, abort_seconds)); }
void Observer::moves_again() { say(moves_again_words); }

std::string_view stopping_words(bool asked_elsewhere) {
  return asked_elsewhere ? "another machine was asked to stop; finishing the step and saving."
                         : "finishing the step and saving; Ctrl-C again to stop at once.";
}

std::string stalled_words(const Stall& stall, double abort_seconds) {
  if (!stall.ends_job)
    return fmt::format("{}. The run waits for it: {}.", stall.text, stall.advice.empty() ? "look there" : base::join(stall.advice, "; "));
  return fmt::format("nothing has moved for {:.0f} s: {}. The job is ended after {:.0f} s (monitor.stall_abort_seconds).", stall.seconds,
                     stall.text, abort_seconds);
}

}  // namespace lockstep::launch
