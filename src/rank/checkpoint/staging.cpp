// Copying a writer's ranges to host memory.
#include "rank/checkpoint/staging.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/error.h"
#include "rank/checkpoint/manifest.h"

namespace lockstep::checkpoint {
namespace {

// Where copies from one device are waited for.
void wait_for(const std::optional<at::Device>& device) {
  if (!device) return;
  const c10::impl::VirtualGuardImpl backend(device->type());
  backend.getStream(*device).synchronize();
}

// Numbers [begin, begin + count) of the flattened whole, of which `tensor` holds these or more.
at::Tensor numbers_of(const NamedTensor& tensor, std::int64_t begin, std::int64_t count) {
  return tensor.tensor.reshape({-1}).narrow(0, begin - tensor.begin, count);
}

}  // namespace

void Staging::reserve(std::uint64_t bytes, bool pinned) {
  if (buffer_.defined() && static_cast<std::uint64_t>(buffer_.numel()) >= bytes) return;
  buffer_.reset();  // before the new one is made, so that both never stand side by side
  const auto size = static_cast<std::int64_t>(bytes), page = static_cast<std::int64_t>(page_bytes);
  const at::Tensor raw = at::empty({size + page}, at::TensorOptions().dtype(at::kByte).pinned_memory(pinned));
  buffer_ = raw.narrow(0, page - static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(raw.data_ptr()) % page_bytes), size);
}

std::vector<StagedRange> Staging::copy(const Contents& contents, std::span<const CutFile> files, std::span<const FileRange> ranges) {
  std::map<std::pair<std::string_view, std::string_view>, const NamedTensor*> sources;
  std::optional<at::Device> device;
  const auto list = [&](std::string_view kind, const std::vector<NamedTensor>& tensors) {
    for (const NamedTensor& tensor : tensors) {
      sources[{kind, tensor.name}] = &tensor;
      if (!tensor.tensor.is_cpu()) device = tensor.tensor.device();
    }
  };
  list(kinds[0], contents.model);
  list(kinds[1], contents.optimizer);

  std::vector<std::uint64_t> starts;  // of each range in the buffer
  std::uint64_t total = 0;
  for (const FileRange& range : ranges) {
    starts.push_back(total + range.begin % page_bytes);
    total += range.staged_bytes();
  }
  reserve(total, device && at::globalContext().hasCUDA());

  std::vector<StagedRange> staged;
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    const FileRange& range = ranges[r];
    const CutFile& file = files[range.file];
    const std::uint64_t header = file.header.size();
    auto* const memory = static_cast<std::byte*>(buffer_.data_ptr()) + starts[r];
    if (range.begin < header) std::memcpy(memory, file.header.data() + range.begin, std::min(header, range.end) - range.begin);
    for (const TensorEntry& entry : file.entries) {
      const std::uint64_t begin = std::max(header + entry.begin, range.begin), end = std::min(header + entry.end, range.end);
      if (begin >= end) continue;
      const std::uint64_t element = c10::elementSize(entry.dtype);
      const auto first = static_cast<std::int64_t>((begin - header - entry.begin) / element);
      const at::Tensor slice =
          buffer_.narrow(0, static_cast<std::int64_t>(starts[r] + begin - range.begin), static_cast<std::int64_t>(end - begin));
      slice.view(entry.dtype)
          .copy_(numbers_of(*sources.at({file.kind, entry.name}), first, static_cast<std::int64_t>((end - begin) / element)),
                 /*non_blocking=*/true);
    }
    staged.push_back({range, {memory, range.bytes()}});
  }
  wait_for(device);
  return staged;
}

}  // namespace lockstep::checkpoint
