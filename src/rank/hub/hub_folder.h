// The weights of a Hugging Face model folder: model.safetensors, or an index with its shards, checked against a model and read piece by
// piece.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rank/checkpoint/safetensors.h"
#include "rank/model/weights/unit.h"

namespace lockstep::hub {

// The mapped files of one folder. The constructor checks the index and every header; errors are UserError(ExitCode::checkpoint) that
// name file and tensor. Every rank opens it for itself: mapped pages are shared, and walk() gives them back behind itself.
class HubFolder {
 public:
  explicit HubFolder(const std::filesystem::path& folder);
  HubFolder(HubFolder&&) noexcept;
  ~HubFolder();

  struct Tensor {
    const checkpoint::SafetensorsFile* file = nullptr;
    const checkpoint::TensorEntry* entry = nullptr;
  };
  const std::filesystem::path& path() const { return folder_; }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  const Tensor* find(const std::string& name) const;

  // Every piece of these units must be there in its shape, as f32, f16, bf16 or NF4 of bitsandbytes. Returns what a person should know:
  // tensors nobody asked for.
  std::vector<std::string> check(std::span<const model::UnitSpec> units) const;

  // A view of the mapped bytes (of a copy where they are not aligned), in the file's type. Lives as long as this folder.
  at::Tensor view(const std::string& name) const;
  // The same of numbers [begin, begin + count), flat where that is not all.
  at::Tensor view(const std::string& name, std::int64_t begin, std::int64_t count) const;
  // Gives a tensor's pages back to the system; a later view() reads them again.
  void forget(const std::string& name) const;

 private:
  void open_single(const std::filesystem::path& file);
  void open_index(const std::filesystem::path& index);

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<checkpoint::SafetensorsFile>> files_;
  std::map<std::string, Tensor> tensors_;
};

// Hands every piece of the units over, in their order, as it lies in the file (its type, on the host). The view is valid during the call;
// pages ahead are read by other threads meanwhile, those behind are given back: memory stays at the largest tensor and some hundred MB.
using ReceivePiece = std::function<void(const std::string& name, const at::Tensor& host_view)>;
void walk(const HubFolder& folder, std::span<const model::UnitSpec> units, const ReceivePiece& receive);
// The same for numbers [begin, begin + count) of these tensors: of a part of a tensor the view is flat, and no more than that is read.
struct WantedNumbers {
  std::string name;
  std::int64_t begin, count;
};
void walk(const HubFolder& folder, std::span<const WantedNumbers> wanted, const ReceivePiece& receive);

// Collective over the ranks that hold a model in shards: whole becomes what they bring, in the order of their shards.
using Gather = std::function<void(const at::Tensor& whole, const at::Tensor& mine)>;
// The ranks that load a model together. Each unit is read by one group of them that holds it in shards, and sent from there: send() is
// collective over those that hold the same shards in different groups, and gives all of them the numbers of group `from`.
struct LoadingRanks {
  Gather gather = {};
  std::function<void(const at::Tensor& numbers, int from, const std::string& what)> send = {};
  int group = 0, groups = 1;
};

struct Loaded {
  std::vector<std::string> notes;                // check()'s
  std::uint64_t bytes_read = 0, bytes_held = 0;  // by this rank, and in these tensors of the folder
};
// Fills what is held of weights and, where there are any, of master weights; of a shard no more than that is read. Matrices that are held
// quantized are quantized on the device, one piece after the other; where ranks hold them between them each makes an equal part of every
// piece, and they gather each other's. Pieces that the folder holds in four bits are taken as they are, or made whole for a unit that holds
// them whole. Checks first, so nothing is written from a folder that does not fit. Collective where ranks are given.
Loaded load_units(const HubFolder& folder, const std::vector<std::unique_ptr<model::Unit>>& units, const LoadingRanks& ranks = {});

// Copies host memory into tensors on a device, in pieces, converting on the device: the host never holds a second copy.
class Upload {
 public:
  explicit Upload(at::Device device);
  ~Upload();
  // from: contiguous, on the host, any float type; each target: contiguous, of the same number of elements, on the device.
  void copy(const at::Tensor& from, std::span<const at::Tensor> targets);
  // Blocks until all copies are done. Errors of the device surface here.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::hub
