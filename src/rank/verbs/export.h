// Model folders from what there is: a checkpoint's weights (`lockstep export`), adapters folded into their model (`lockstep merge`).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "rank/verbs/arguments.h"

namespace lockstep::verbs {

// A model folder to be written.
struct FolderRequest {
  std::filesystem::path output;
  std::string dtype;  // "f32", "f16", "bf16"; empty: that of where the weights come from
  std::uint64_t max_shard_bytes = 5'000'000'000;
  bool nf4 = false;  // in four bits
};

struct ExportRequest : FolderRequest {
  std::filesystem::path run;         // run folder
  std::filesystem::path checkpoint;  // empty: the newest whole one
};
ExportRequest parse_export_request(const Arguments& arguments);
FolderRequest parse_folder_request(const Arguments& arguments);
// Returns what was written, in a sentence. Shows a bar where standard error is a terminal.
std::string export_checkpoint(const ExportRequest& request);

// Adapters folded into the model they belong to, as a model folder.
struct MergeRequest : FolderRequest {
  std::filesystem::path model;
  std::vector<std::filesystem::path> adapters;  // one after another
};
MergeRequest parse_merge_request(const Arguments& arguments);
std::string merge_adapters(const MergeRequest& request);

}  // namespace lockstep::verbs
