// Ranks that look through a checkpoint, and read it, between them: no byte is read by two that could have it from each other.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "rank/checkpoint/checkpoint.h"
#include "rank/comm/comm.h"
#include "rank/model/weights/unit.h"

namespace lockstep::train {

// Collective. Every rank reads some of the files; throws, on the rank that found it, where one is damaged.
void verify_together(const comm::Group& group, const std::filesystem::path& checkpoint);
// A checkpoint that may be resumed from, and what a person should know of those that were passed over.
struct Found {
  std::optional<std::filesystem::path> checkpoint;
  std::vector<std::string> skipped = {};  // which, and why; on rank 0
};
// Collective. The newest whole checkpoint in `folder`, the same on every rank.
Found newest_whole_together(const comm::Group& group, const std::filesystem::path& folder);

// Reads tensors, as much of each as this rank holds. replicas: ranks that hold the same of every tensor; each is read by one of them, and
// the others get it from there. Collective over them; null: nobody does.
class TensorReading {
 public:
  TensorReading(const checkpoint::Reader& reader, const comm::Group* replicas);
  void read(std::string_view kind, std::span<const model::NamedSlice> slices);

 private:
  void read_here(std::string_view kind, const model::NamedSlice& slice) const;

  const checkpoint::Reader& reader_;
  const comm::Group* replicas_;
  std::vector<std::size_t> load_;  // bytes that each replica has been given to read
};

}  // namespace lockstep::train
