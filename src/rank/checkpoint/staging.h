// One writer's share of a checkpoint, copied to host memory in the layout of its files.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rank/checkpoint/checkpoint.h"
#include "rank/checkpoint/safetensors.h"

namespace lockstep::checkpoint {

// Which writer stores each of these tensors: the largest first, each to the writer with the fewest bytes so far.
// A function of its arguments alone, so that all writers agree without talking.
std::vector<int> assign(std::span<const std::uint64_t> bytes, int writers);

struct StagedFile {
  std::string kind;
  std::string name;
  std::vector<TensorEntry> entries;
  std::string header;
  std::span<const std::byte> data;  // within the staging buffer
};

// Owns the host buffer and keeps it from save to save: fresh memory costs more than the copy (page faults, pinning).
class Staging {
 public:
  // Copies this writer's share; the spans stay valid until the next call. Blocks until the bytes are there.
  std::vector<StagedFile> copy(std::int64_t step, const Contents& contents, const Share& share);

 private:
  void reserve(std::uint64_t bytes, bool pinned);
  at::Tensor buffer_;  // [bytes] u8
};

}  // namespace lockstep::checkpoint
