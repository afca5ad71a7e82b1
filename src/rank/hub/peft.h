// PEFT adapter folders: adapter_config.json beside adapter_model.safetensors, in PEFT's names. Reading, writing, folding into weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "layout/adapters/adapter_targets.h"
#include "config/run_config.h"
#include "rank/checkpoint/safetensors.h"
#include "rank/model/weights/unit.h"

namespace lockstep::hub {

// An adapter that is there, read-only. Errors name file and tensor.
class PeftAdapter {
 public:
  explicit PeftAdapter(const std::filesystem::path& folder);

  const config::LoraConfig& lora() const { return lora_; }
  const std::filesystem::path& path() const { return folder_; }
  // Fills the adapter units of a model that was laid out with lora(): every piece must be there in its shape, and nothing else.
  void load(const std::vector<std::unique_ptr<model::Unit>>& adapters) const;

  // The weight of this Hugging Face name with the adapter in it, in f32 on the host; `weight` itself where the adapter has nothing for it.
  at::Tensor folded(const std::string& name, const at::Tensor& weight) const;
  // Which names folded() changes.
  std::vector<std::string> touched() const;

 private:
  at::Tensor tensor(const checkpoint::TensorEntry& entry) const;

  std::filesystem::path folder_;
  config::LoraConfig lora_;
  layout::AdapterTargets targets_;
  checkpoint::SafetensorsFile file_;
};

// Written beside and renamed; what stood there before is replaced. base: what the adapter belongs to. Numbers are written
// in f32: they are the masters.
void write_peft_folder(base::FileSystem& files, const std::filesystem::path& folder, const config::LoraConfig& lora,
                       const std::string& base, const std::vector<const model::Unit*>& adapters);

}  // namespace lockstep::hub
