// Choosing a writer's tensors and copying them to host memory.
#include "rank/checkpoint/staging.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/error.h"
#include "base/files.h"
#include "rank/checkpoint/manifest.h"

namespace lockstep::checkpoint {
namespace {

// A file's data starts on a page of the buffer, so that it can be written past the page cache.
constexpr std::uint64_t file_alignment = 4096;

// Where copies from one device are waited for.
void wait_for(const std::optional<at::Device>& device) {
  if (!device) return;
  const c10::impl::VirtualGuardImpl backend(device->type());
  backend.getStream(*device).synchronize();
}

}  // namespace

std::vector<int> assign(std::span<const std::uint64_t> bytes, int writers) {
  std::vector<std::size_t> by_size(bytes.size());
  std::iota(by_size.begin(), by_size.end(), 0u);
  std::stable_sort(by_size.begin(), by_size.end(), [&](std::size_t a, std::size_t b) { return bytes[a] > bytes[b]; });
  std::vector<std::uint64_t> load(static_cast<std::size_t>(writers));
  std::vector<int> writer(bytes.size());
  for (const std::size_t i : by_size) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += bytes[i];
    writer[i] = static_cast<int>(least - load.begin());
  }
  return writer;
}

void Staging::reserve(std::uint64_t bytes, bool pinned) {
  if (buffer_.defined() && static_cast<std::uint64_t>(buffer_.numel()) >= bytes) return;
  buffer_.reset();  // before the new one is made, so that both never stand side by side
  const auto size = static_cast<std::int64_t>(bytes), page = static_cast<std::int64_t>(file_alignment);
  const at::Tensor raw = at::empty({size + page}, at::TensorOptions().dtype(at::kByte).pinned_memory(pinned));
  buffer_ = raw.narrow(0, page - static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(raw.data_ptr()) % file_alignment), size);
}

std::vector<StagedFile> Staging::copy(std::int64_t step, const Contents& contents, const Share& share) {
  const std::vector<NamedTensor>* lists[] = {&contents.model, &contents.optimizer};
  std::vector<std::uint64_t> bytes;
  for (const auto* list : lists) {
    for (const NamedTensor& tensor : *list) bytes.push_back(tensor.tensor.nbytes());
  }
  const std::vector<int> writer = assign(bytes, share.count);

  std::vector<StagedFile> files;
  std::vector<std::uint64_t> starts;  // of each file's data in the buffer
  std::map<std::pair<std::string_view, std::string>, const at::Tensor*> sources;
  std::uint64_t total = 0;
  std::optional<at::Device> device;
  std::size_t i = 0;
  for (std::size_t kind = 0; kind < std::size(kinds); ++kind) {
    StagedFile file{.kind = std::string(kinds[kind]),
                    .name = tensors_name(kinds[kind], share.index, share.count),
                    .entries = {},
                    .header = {},
                    .data = {}};
    for (const auto& [name, tensor] : *lists[kind]) {
      if (writer[i++] != share.index) continue;
      file.entries.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
      sources[{kinds[kind], name}] = &tensor;
      if (!tensor.is_cpu()) device = tensor.device();
    }
    if (file.entries.empty()) continue;
    starts.push_back(total);
    const std::uint64_t data_bytes = lay_out(file.entries);
    total += (data_bytes + file_alignment - 1) / file_alignment * file_alignment;
    file.header = safetensors_header(file.entries, {{"format", "pt"}, {"step", fmt::format("{}", step)}});
    files.push_back(std::move(file));
  }

  reserve(total, device && at::globalContext().hasCUDA());
  for (std::size_t f = 0; f < files.size(); ++f) {
    for (const TensorEntry& entry : files[f].entries) {
      const auto slice = buffer_.narrow(0, static_cast<std::int64_t>(starts[f] + entry.begin), static_cast<std::int64_t>(entry.bytes()));
      slice.view(entry.dtype).view(entry.shape).copy_(*sources.at({files[f].kind, entry.name}), /*non_blocking=*/true);
    }
    const auto* data = static_cast<const std::byte*>(buffer_.data_ptr()) + starts[f];
    files[f].data = {data, files[f].entries.back().end};
  }
  wait_for(device);
  return files;
}

}  // namespace lockstep::checkpoint
