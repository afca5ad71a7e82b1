// What of a run goes into a checkpoint and how a run goes on from one, on any number of ranks.
#pragma once

#include <filesystem>
#include <optional>

#include "rank/train/resume/read_together.h"
#include "rank/train/run.h"

namespace lockstep::train {

checkpoint::Contents contents_of(const Run& run);

// Which checkpoint checkpoint.resume means: rank 0 looks, and all look through what it finds, each at some of the files. Collective.
// Rank 0 first finishes setting aside what an earlier start has turned away from.
Found find_checkpoint(const comm::Group& group, const config::RunConfig& config, const journal::RunFolder& folder);

// What of a checkpoint's run may be another here.
struct Restored {
  std::int64_t global_batch_size = 0;
  bool same_data = true;
  std::vector<std::string> notes;  // for people
};
// Weights, optimizer and progress. Refuses another model shape (naming the keys), adapters that rest on something else, and other data
// (unless data.allow_new_data).
Restored restore(Run& run, const std::filesystem::path& checkpoint);

// Weights alone, as generating text needs them.
void restore_weights(TensorReading& reading, const parallel::Replica& replica);
// Throws, naming the differing keys, unless the checkpoint's model is this one.
void check_same_model(const checkpoint::Reader& reader, const config::ModelConfig& model);

std::filesystem::path checkpoints_folder(const config::RunConfig& config, const journal::RunFolder& folder);
// The newest whole checkpoint of a run; UserError of `room` where there is none.
std::filesystem::path newest_checkpoint(std::string_view room, const config::RunConfig& config, const journal::RunFolder& folder);

}  // namespace lockstep::train
