// What the launchers of one run tell each other while it runs: how each stands, who wishes to stop, how it ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "front/launch/report/report.h"
#include "journal/page.h"

namespace lockstep::launch {

struct Outcome {
  enum class Kind { complete, stopped, ended_at_once, failed };
  Kind kind = Kind::complete;
  int signal = 0;        // that ended it at once
  Report report = {};    // if it failed
  bool trained = false;  // a step was begun, so a stop had something to save
};

// How the ranks of one machine stand.
struct Standing {
  std::vector<journal::PageView> pages;
  std::vector<RankEnd> ends;  // of those that have ended or failed
  bool all_ended = false;
};

// Machine 0 judges for all: it sees every rank, and its word is how the run ended on every machine.
class Peers {
 public:
  virtual ~Peers() = default;
  struct News {
    int stop_signal = 0;             // another machine was asked to stop
    bool at_once = false;            // and not to finish its step
    Standing others;                 // machine 0 only: all ranks elsewhere; times are of this machine's clock
    std::string lost;                // why the run cannot go on: "machine 1 (box, 10.0.0.2) is gone: ..."
    std::optional<Outcome> verdict;  // machine 0's word, elsewhere
  };
  virtual bool judges() const = 0;
  virtual News exchange(const Standing& mine) = 0;  // several times a second
  virtual void wish_to_stop(int signal, bool at_once) = 0;
};

}  // namespace lockstep::launch
