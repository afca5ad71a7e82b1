// The questions of a meeting that are pure: who is missing, and what keeps machines from being parts of one run.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "front/launch/meet/machines.h"

namespace lockstep::launch::meet {

// "machine 1 (box)"
std::string name_of(const Rendezvous& rendezvous, int node, const std::string& host);
// "2 of 3 machines are here; missing node rank 2"
std::string who_is_missing(const Rendezvous& rendezvous, const std::map<int, Facts>& here);
// Why these are not parts of one run, for all of them to read; nothing if they are. Machine 0 is among them.
std::optional<Refusal> find_refusal(const Rendezvous& rendezvous, const std::map<int, Facts>& here, bool restarted);
// World size and each machine's first rank, from the counts.
Agreement agree(const std::map<int, Facts>& here, int node);

// Says when a line is worth saying again: at once when it changed, then more and more rarely.
class Sparingly {
 public:
  bool worth_saying(const std::string& line);

 private:
  std::string last_;
  std::int64_t said_ns_ = 0;
  double wait_s_ = 0;
};

}  // namespace lockstep::launch::meet
