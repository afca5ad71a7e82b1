// Writes a Hugging Face model folder: config.json, safetensors in shards, tokenizer files; whole or not there.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/files.h"
#include "config/run_config.h"
#include "rank/model/weights/unit.h"

namespace lockstep::hub {

struct HubExport {
  config::ModelConfig model;
  config::DType dtype = config::DType::bf16;
  std::filesystem::path source = {};     // the folder the model started from: its config.json and generation_config.json go on; or empty
  std::filesystem::path tokenizer = {};  // folder or tokenizer.json whose tokenizer goes along; empty: none
  std::uint64_t max_shard_bytes = 5'000'000'000;
  bool nf4 = false;  // matrices of blocks in four bits, as bitsandbytes packs them; dtype is then what they compute in
};

// Gives a tensor by its Hugging Face name: float, contiguous, on any device. It may be a view of something mapped: `done` is called
// when it has been written.
struct TensorSource {
  std::function<at::Tensor(const std::string& name)> fetch;
  std::function<void(const std::string& name)> done = {};
};
using ExportProgress = std::function<void(std::uint64_t bytes, std::uint64_t of)>;

// Written beside as FOLDER.partial, synced, then renamed; what stood at FOLDER before is replaced. Numbers are converted some megabytes
// at a time: the model is never whole in memory. Not collective: one process writes.
void write_hub_folder(base::FileSystem& files, const std::filesystem::path& folder, const HubExport& what, const TensorSource& tensors,
                      const ExportProgress& progress = {});

}  // namespace lockstep::hub
