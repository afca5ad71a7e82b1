// One screen of text about runs: progress, loss, where each rank's time goes, GPUs, the log's end.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "front/runs/live_run.h"

namespace lockstep::show {

struct Screen {
  int width = 80, height = 24;
  bool color = false;
  bool utf8 = true;  // letters beyond ASCII come out as such
  int log_rank = 0;  // whose log
};
// At most `height` lines of at most `width` columns, without a line end behind the last.
std::string draw(std::span<const runs::LiveRun* const> live, const Screen& screen);

// One line about a run, for where there is no terminal.
std::string progress_line(const runs::RunView& view);

// "▁▃▇", or "_-#": the values between their lowest and highest one.
std::string sparkline(std::span<const double> values, bool utf8 = true);

}  // namespace lockstep::show
