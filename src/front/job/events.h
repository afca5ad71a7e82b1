// What a run tells whoever watches it: the terminal, a page, an embedding program. One type an event; none of them prints.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include <nlohmann/json_fwd.hpp>

#include "config/run_config.h"
#include "front/job/plan.h"
#include "front/job/prepare_data.h"
#include "front/launch/peers.h"
#include "front/launch/watch.h"
#include "journal/page.h"

namespace lockstep::job {

// Before the ranks start, in this order.
struct WaitingForOwner {  // of the run folder, who may be gone
  std::string text;
};
struct WaitingForData {  // another process tokenizes it
  std::string path;
};
struct Tokenizing {  // often
  std::string path;
  double share;  // 0 to 1
};
struct DataReady {
  const PreparedPart& part;
};
struct Invitation {  // how a person starts the other machines
  std::string command;
  bool several;
};
struct Planned {  // once; a restart goes by the same plan
  const RunPlan& plan;
  const config::RunConfig& config;
};

// While they run.
struct RankStarted {
  int rank;
  std::string device;
  pid_t pid;
  std::filesystem::path log;
};
struct Pages {  // several times a second
  std::span<const journal::PageView> pages;
};
struct MetricsLine {  // of this start: a step, an evaluation, or an event of rank 0
  const std::string& text;
  const nlohmann::json& json;
};
struct RankNotice {  // what a rank could not say in metrics.jsonl
  std::uint32_t rank;
  std::string text;
};
struct Note {
  std::string text;
};
struct Stalled {
  launch::Stall stall;
  double abort_seconds;  // when the job is ended for it
};
struct MovesAgain {};
struct Stopping {
  bool asked_elsewhere;  // on another machine of the run
};
struct Restarting {
  launch::Report report;  // of what failed
  std::int64_t restart, allowed;
  std::string from;  // "the newest whole checkpoint, PATH"
};

// The last one.
struct Ended {
  launch::Outcome outcome;
  int exit_code = 0;
  std::filesystem::path folder;
  std::string resume;           // the command that goes on with the run
  bool has_checkpoint = false;  // to go on from
  double seconds = 0;
  std::int64_t last_step = 0;
  std::optional<double> last_loss;
};

// What events refer to lives as long as the call that tells of them.
using Event = std::variant<WaitingForOwner, WaitingForData, Tokenizing, DataReady, Invitation, Planned, RankStarted, Pages, MetricsLine,
                           RankNotice, Note, Stalled, MovesAgain, Stopping, Restarting, Ended>;

}  // namespace lockstep::job
