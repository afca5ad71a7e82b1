// Asks a run that trains, by its control file, to save, evaluate, sample or stop, and waits for its answer. Prints nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "journal/control.h"

namespace lockstep::job {

// The folder of a run that is named by its folder, or by its name under `output`. UserError where there is none, with the nearest name.
std::filesystem::path find_run(const std::string& run, const std::filesystem::path& output);

// What came of a wish.
struct Answer {
  journal::Wish wish;
  std::int64_t step = 0;  // after which it was carried out, on all ranks
  bool done = false;
  std::string reason;          // why not
  std::string checkpoint;      // of save and stop
  std::optional<double> loss;  // of evaluate
  struct Sample {
    std::string prompt, text;
  };
  std::vector<Sample> samples;
};

// Blocks until all are answered, in the order given. UserError(usage) where nobody trains the run, UserError(run) where it ends first or
// does not answer within timeout_s; wishes that nobody has taken up by then are taken back.
std::vector<Answer> ask(const std::filesystem::path& run, std::span<const journal::Wish> wishes, double timeout_s);

}  // namespace lockstep::job
