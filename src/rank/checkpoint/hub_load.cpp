// Brings a model folder's weights to the device: pages read ahead by threads, pinned buffers in turn, conversion on the device.
#include <algorithm>
#include <array>
#include <cstring>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/error.h"
#include "rank/checkpoint/hub_folder.h"
#include "rank/checkpoint/pages.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t ahead_bytes = 256u << 20;
constexpr int reading_threads = 4;  // of one rank; one alone waits for the disk, or copies from the cache at a few GB/s

}  // namespace

void walk(const HubFolder& folder, std::span<const model::UnitSpec> units, const ReceivePiece& receive) {
  std::vector<std::string> names;
  std::vector<std::span<const std::byte>> ranges;
  for (const model::UnitSpec& unit : units) {
    for (const model::LeafSpec& leaf : unit.leaves) {
      for (const model::Piece& piece : leaf.pieces) {
        const HubFolder::Tensor* tensor = folder.find(piece.name);
        base::check(tensor != nullptr, "the folder was checked against these units");
        names.push_back(piece.name);
        ranges.push_back(tensor->file->bytes(*tensor->entry));
      }
    }
  }
  ReadAhead pages(ranges, ahead_bytes, reading_threads);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!pages.wait(i)) {
      throw base::checkpoint_error("model", "{}: tensor {} cannot be read: the disk failed, or the file became shorter while it was read.",
                                   folder.find(names[i])->file->path().string(), names[i]);
    }
    receive(names[i], folder.view(names[i]));
    pages.done(i);
  }
}

std::vector<std::string> load_units(const HubFolder& folder, const std::vector<std::unique_ptr<model::Unit>>& units) {
  std::vector<model::UnitSpec> specs;
  std::map<std::string, std::vector<at::Tensor>> targets;
  for (const auto& unit : units) {
    specs.push_back(unit->spec());
    for (auto& [name, view] : unit->pieces_of(unit->weights())) targets[name].push_back(view);
    if (!unit->master().defined() || unit->master().is_same(unit->weights())) continue;
    for (auto& [name, view] : unit->pieces_of(unit->master())) targets[name].push_back(view);
  }
  std::vector<std::string> notes = folder.check(specs);
  Upload upload(units.front()->weights().device());
  walk(folder, specs, [&](const std::string& name, const at::Tensor& view) { upload.copy(view, targets.at(name)); });
  upload.finish();
  return notes;
}

// Two stages in turn: while the device copies and converts out of one buffer, the host fills the next.
struct Upload::Impl {
  struct Slot {
    at::Tensor pinned, on_device;  // [slot_bytes] bytes
    std::unique_ptr<c10::Event> free;
  };
  static constexpr std::int64_t slot_bytes = 32 << 20;

  explicit Impl(at::Device where) : device(where) {}

  Slot& next_slot() {
    Slot& slot = slots[next++ % slots.size()];
    if (slot.free) {
      slot.free->synchronize();
      return slot;
    }
    slot.pinned = at::empty({slot_bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    slot.on_device = at::empty({slot_bytes}, at::TensorOptions().dtype(at::kByte).device(device));
    slot.free = std::make_unique<c10::Event>(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    return slot;
  }

  void copy(const at::Tensor& from, std::span<const at::Tensor> targets) {
    const at::Tensor flat = from.reshape({-1});
    const auto element = static_cast<std::int64_t>(flat.element_size());
    const std::int64_t step = slot_bytes / element;
    for (std::int64_t at = 0; at < flat.numel(); at += step) {
      const std::int64_t count = std::min(step, flat.numel() - at);
      Slot& slot = next_slot();
      auto* pinned = static_cast<std::byte*>(slot.pinned.data_ptr());
      const auto* source = static_cast<const std::byte*>(flat.const_data_ptr()) + at * element;
      at::parallel_for(0, count * element, 1 << 20, [&](std::int64_t begin, std::int64_t end) {
        std::memcpy(pinned + begin, source + begin, static_cast<std::size_t>(end - begin));
      });
      const auto cut = [&](const at::Tensor& buffer) { return buffer.narrow(0, 0, count * element).view(flat.scalar_type()); };
      cut(slot.on_device).copy_(cut(slot.pinned), /*non_blocking=*/true);
      for (const at::Tensor& target : targets) target.view({-1}).narrow(0, at, count).copy_(cut(slot.on_device));
      slot.free->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    }
  }

  at::Device device;
  std::array<Slot, 3> slots;
  std::size_t next = 0;
};

Upload::Upload(at::Device device) : impl_(std::make_unique<Impl>(device)) {}
Upload::~Upload() = default;

void Upload::copy(const at::Tensor& from, std::span<const at::Tensor> targets) {
  if (!impl_->device.is_cpu()) return impl_->copy(from, targets);
  for (const at::Tensor& target : targets) target.copy_(from);
}

void Upload::finish() {
  if (!impl_->device.is_cpu()) c10::impl::VirtualGuardImpl(impl_->device.type()).getStream(impl_->device).synchronize();
}

}  // namespace lockstep::checkpoint
