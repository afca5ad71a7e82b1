// What going on from a checkpoint means for the rest of the run: its timeline, its length, its schedule.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "rank/train/resume/epochs.h"
#include "rank/train/run.h"
#include "rank/train/resume/state.h"

namespace lockstep::train {

// Whether a checkpoint is one of this run's own, on the timeline that the run goes on with.
bool is_own(const Run& run, const std::filesystem::path& checkpoint);

// Sets aside what lies past the step that the run goes on from, or all of the run's own checkpoints where it goes on from elsewhere.
// Rank 0, before anything is saved. Returns a sentence about it, empty where nothing lay there.
std::string end_timeline(const Run& run, const std::optional<std::filesystem::path>& checkpoint);
// Whose lines metrics.jsonl begins with; empty: its own.
std::filesystem::path history_of(const Run& run, const std::optional<std::filesystem::path>& checkpoint);

// run.total_steps, and where the schedule of the learning rate stands. Returns what a person should know where the batch or the data is
// another than the checkpoint's.
std::vector<std::string> plan_steps(Run& run, const std::optional<Restored>& restored);

}  // namespace lockstep::train
