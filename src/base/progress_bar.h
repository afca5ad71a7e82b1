// One line on the terminal that says how far something is; nothing where standard error is not a terminal. With LOCKSTEP_PROGRESS=json
// lines {"done": 1, "total": 2} on standard output instead, for a program that shows it its own way.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::base {

class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();  // takes the line away
  ProgressBar(const ProgressBar&) = delete;
  // Draws at most ten times a second. `more` stands behind the bar: "12.3 MB/s".
  void show(std::uint64_t done, std::uint64_t total, std::string_view more);

 private:
  bool json_, terminal_;
  std::int64_t start_ns_, drawn_ns_ = 0;
  bool drawn_ = false;
};

}  // namespace lockstep::base
