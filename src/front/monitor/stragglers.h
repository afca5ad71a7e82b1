// Names a rank that holds the others up for more than a moment, and says why as far as it shows.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "front/monitor/readings.h"
#include "journal/parts.h"

namespace lockstep::monitor {

enum class Reason { data, clock, temperature, power, other_process, cpu, disk, unknown };
std::string_view name_of(Reason reason);  // "other_process": for files

struct Verdict {
  journal::Straggler straggler;
  Reason reason = Reason::unknown;
  std::string text;  // for people
};

// Hears of steps and readings; speaks where the same rank was the slowest in two windows of some seconds each, once until that changes.
// One thread.
class Stragglers {
 public:
  struct Options {
    double window_s = 3;
    std::size_t readings_kept = 10;
  };
  Stragglers() : Stragglers(Options{}) {}
  explicit Stragglers(Options options) : options_(options) {}

  void hear(const Reading& reading);
  // Each rank's time in a step, on average over `steps` of them.
  std::optional<Verdict> hear(std::span<const journal::PartSeconds> ranks, double steps);

 private:
  std::optional<Verdict> judge();
  Verdict verdict_of(const journal::Straggler& found) const;

  Options options_;
  std::deque<Reading> readings_;
  std::vector<journal::PartSeconds> window_;  // sums
  double window_steps_ = 0;
  std::optional<int> suspect_;  // the slowest in the last window
  std::optional<std::pair<int, Reason>> told_;
};

}  // namespace lockstep::monitor
