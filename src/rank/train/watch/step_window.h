// The steps since the last line of metrics.jsonl: what a line says of them all.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "journal/metrics.h"
#include "journal/parts.h"
#include "rank/comm/ledger.h"
#include "rank/train/run.h"

namespace lockstep::train {

// Rank 0's are written; the others' cost nothing. Run must outlive it.
class StepWindow {
 public:
  explicit StepWindow(const Run& run) : run_(run) {}
  void add(double seconds, double trained);
  // Fills in speed, each rank's time and the collectives, per step, and begins the next window. numbers: of the step's totals.
  void close(std::span<const double> numbers, journal::StepLine& line);

 private:
  std::vector<journal::PartSeconds> rank_seconds(std::span<const double> numbers);
  std::vector<journal::CollectiveLine> collectives();

  const Run& run_;
  double seconds_ = 0, trained_ = 0;
  double steps_ = 0;
  // So far, as of the last line:
  std::vector<journal::PartSeconds> told_seconds_;  // by rank
  std::map<std::string, comm::Ledger::Entry, std::less<>> told_collectives_;
};

}  // namespace lockstep::train
