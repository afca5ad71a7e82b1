// A run's weights as a Hugging Face model folder: at the end of training by itself, or from a checkpoint by `lockstep export`.
#pragma once

#include <filesystem>
#include <string>

#include "rank/hub/hub_writer.h"
#include "rank/train/arguments.h"
#include "rank/train/run.h"

namespace lockstep::train {

// What goes along with a run's weights.
hub::HubExport hub_export_of(const config::RunConfig& config);

// RUN/model, from the weights this rank holds. One rank calls it.
std::filesystem::path export_model(const Run& run);

// RUN/adapter, in PEFT's form, from the adapters this rank holds. One rank calls it.
std::filesystem::path export_adapter(const Run& run);

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

}  // namespace lockstep::train
