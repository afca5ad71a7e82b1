// From how the ranks ended to what a person should read: who was first, how, where, and what to try.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "front/launch/process.h"
#include "front/launch/watch.h"
#include "journal/page.h"

namespace lockstep::launch {

// One rank at the end of a failed job.
struct RankEnd {
  int rank = 0;
  std::optional<End> end;  // none: it still ran, and was then ended by us
  std::int64_t ended_ns = 0;
  std::optional<journal::PageView> page;
  std::vector<std::string> log;  // its last lines
  std::filesystem::path log_file;
  std::string out_of_memory;  // evidence that the kernel killed it for want of memory
  bool dying = false;         // ended by itself, but its memory is still being freed: how is not known yet
  bool elsewhere = false;     // another launcher's child
  bool told = false;          // and that launcher has told how it ended; otherwise we only know that it is gone
  std::string machine;        // where, if not here: "machine 1 (box)"
};

struct Failure {
  int world_size = 1;
  std::vector<RankEnd> ranks;  // those of this machine, and what others have told of theirs
  std::optional<Stall> stall;  // if the job was ended for standing still
  std::string mismatch;        // if ranks entered different collectives
  std::string lost;            // if a machine is gone: "machine 1 (box) is gone: the connection was closed"
};

struct Report {
  int exit_code = 6;
  std::optional<int> rank;  // the first to die
  std::string headline;     // one line
  std::string code = {};    // of the catalogue; empty where nothing there fits
  std::string text;         // all of it
};

// The index in `ranks` of the one whose end explains the others'; nothing if none ended badly.
std::optional<std::size_t> first_cause(const std::vector<RankEnd>& ranks);
// True for errors that another rank's death brings about: connections closed by a peer, operations that lost their partner.
bool is_consequence(const RankEnd& rank);

Report explain(const Failure& failure);

}  // namespace lockstep::launch
