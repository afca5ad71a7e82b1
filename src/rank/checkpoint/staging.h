// What one writer writes of a checkpoint, copied to host memory as it will lie in the files.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "rank/checkpoint/checkpoint.h"
#include "rank/checkpoint/cut.h"

namespace lockstep::checkpoint {

struct StagedRange {
  FileRange range;
  std::span<const std::byte> bytes;  // within the staging buffer, as far from a page's beginning as the range in its file
};

// Owns the host buffer and keeps it from save to save: fresh memory costs more than the copy (page faults, pinning).
class Staging {
 public:
  // Copies these ranges; the spans stay valid until the next call. Blocks until the bytes are there.
  std::vector<StagedRange> copy(const Contents& contents, std::span<const CutFile> files, std::span<const FileRange> ranges);

 private:
  void reserve(std::uint64_t bytes, bool pinned);
  at::Tensor buffer_;  // [bytes] u8, at a page's beginning
};

}  // namespace lockstep::checkpoint
