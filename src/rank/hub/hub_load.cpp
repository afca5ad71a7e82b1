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
#include "rank/hub/bnb.h"
#include "rank/hub/hub_folder.h"
#include "rank/checkpoint/pages.h"

namespace lockstep::hub {

using checkpoint::ReadAhead;

namespace {

constexpr std::size_t ahead_bytes = 256u << 20;
constexpr int reading_threads = 4;  // of one rank; one alone waits for the disk, or copies from the cache at a few GB/s

}  // namespace

namespace {

std::span<const std::byte> bytes_of(const HubFolder& folder, const WantedNumbers& wanted) {
  const HubFolder::Tensor* tensor = folder.find(wanted.name);
  base::check(tensor != nullptr, "the folder was checked against these units");
  const std::span<const std::byte> all = tensor->file->bytes(*tensor->entry);
  const std::size_t element = c10::elementSize(tensor->entry->dtype);
  if (tensor->entry->dtype == at::kByte) return all;  // codes, whose scales lie elsewhere
  return all.subspan(static_cast<std::size_t>(wanted.begin) * element, static_cast<std::size_t>(wanted.count) * element);
}

}  // namespace

void walk(const HubFolder& folder, std::span<const WantedNumbers> wanted, const ReceivePiece& receive) {
  std::vector<std::span<const std::byte>> ranges;
  for (const WantedNumbers& one : wanted) ranges.push_back(bytes_of(folder, one));
  ReadAhead pages(ranges, ahead_bytes, reading_threads);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!pages.wait(i)) {
      throw base::checkpoint_error("model", "{}: tensor {} cannot be read: the disk failed, or the file became shorter while it was read.",
                                   folder.find(wanted[i].name)->file->path().string(), wanted[i].name);
    }
    receive(wanted[i].name, folder.view(wanted[i].name));
    pages.done(i);
  }
}

void walk(const HubFolder& folder, std::span<const model::UnitSpec> units, const ReceivePiece& receive) {
  std::vector<WantedNumbers> wanted;
  for (const model::UnitSpec& unit : units) {
    for (const model::LeafSpec& leaf : unit.leaves) {
      for (const model::Piece& piece : leaf.pieces) wanted.push_back({piece.name, 0, piece.elements()});
    }
  }
  walk(folder, wanted, receive);
}

namespace {

// Where a piece goes.
struct Target {
  std::vector<at::Tensor> views;             // dense: weights, and masters beside them; as much as is held
  std::int64_t begin = 0;                    // their first number in the piece
  model::QuantizedMatrix* matrix = nullptr;  // or quantized
  std::size_t index = 0;                     // which piece of it
  model::Piece piece = {};

  std::int64_t count() const { return matrix != nullptr ? piece.elements() : views.front().numel(); }
  bool holds_all() const { return count() == piece.elements(); }
};

std::map<std::string, Target> targets_of(const std::vector<std::unique_ptr<model::Unit>>& units) {
  std::map<std::string, Target> targets;
  for (const auto& unit : units) {
    const auto add = [&](const at::Tensor& held) {
      for (model::NamedSlice& slice : unit->pieces_in(held)) {
        targets[slice.name].begin = slice.begin;
        targets[slice.name].views.push_back(std::move(slice.view));
      }
    };
    add(unit->held_weights());
    if (unit->master().defined() && !unit->master().is_same(unit->held_weights())) add(unit->master());
    const auto& leaves = unit->spec().leaves;
    for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
      for (std::size_t i = 0; i < leaves[leaf].pieces.size(); ++i) {
        Target& target = targets[leaves[leaf].pieces[i].name];
        target.matrix = unit->quantized(leaf);
        target.index = i;
        target.piece = leaves[leaf].pieces[i];
      }
    }
  }
  return targets;
}

void receive_whole(const at::Tensor& host, const Target& target, Upload& upload) {
  if (target.matrix == nullptr && target.holds_all()) return upload.copy(host, target.views);
  if (target.matrix == nullptr) return upload.copy(host.reshape({-1}).narrow(0, target.begin, target.count()), target.views);
  const at::Tensor whole = at::empty(host.sizes(), target.matrix->options());  // gone when its codes are made
  upload.copy(host, std::span(&whole, 1));
  target.matrix->store(target.index, whole);
}

void receive_quantized(const HubFolder& folder, const Target& target) {
  const kernels::QuantizedBlocks blocks = read_bnb(folder, target.piece);
  for (const at::Tensor& view : target.views) {
    if (target.holds_all()) {
      model::dequantize_into(view, blocks);
    } else {
      const at::Tensor whole = at::empty(target.piece.shape, view.options());  // gone when the numbers that are held are taken
      model::dequantize_into(whole, blocks);
      view.copy_(whole.view({-1}).narrow(0, target.begin, view.numel()));
    }
  }
  if (target.matrix == nullptr) return;
  if (target.matrix->kind() != kernels::Codes::nf4) {
    throw base::checkpoint_error("model", "{} holds its weights in four bits; load_in_8bit cannot hold them better. Use load_in_4bit.",
                                 folder.path().string());
  }
  target.matrix->assign(target.index, blocks);
}

}  // namespace

at::Tensor whole_weight(const HubFolder& folder, const model::Piece& piece, at::ScalarType dtype) {
  at::Tensor view = folder.view(piece.name);
  if (view.scalar_type() != at::kByte) return view;
  at::Tensor whole = at::empty(piece.shape, dtype);
  model::dequantize_into(whole, read_bnb(folder, piece));
  return whole;
}

std::vector<std::string> load_units(const HubFolder& folder, const std::vector<std::unique_ptr<model::Unit>>& units) {
  std::vector<model::UnitSpec> specs;
  for (const auto& unit : units) specs.push_back(unit->spec());
  std::vector<std::string> notes = folder.check(specs);
  const auto targets = targets_of(units);
  Upload upload(units.front()->weights().device());
  std::vector<WantedNumbers> wanted;
  std::map<std::string, const model::Unit*> ends;  // by a unit's last piece
  for (const auto& unit : units) {
    const std::size_t before = wanted.size();
    for (const model::LeafSpec& leaf : unit->spec().leaves) {
      for (const model::Piece& piece : leaf.pieces) {
        const Target& target = targets.at(piece.name);
        if (target.count() > 0) wanted.push_back({piece.name, target.begin, target.count()});
      }
    }
    if (wanted.size() > before) ends[wanted.back().name] = unit.get();
  }
  walk(folder, wanted, [&](const std::string& name, const at::Tensor& view) {
    const Target& target = targets.at(name);
    view.scalar_type() == at::kByte ? receive_quantized(folder, target) : receive_whole(view, target, upload);
    if (const auto unit = ends.find(name); unit != ends.end()) unit->second->keep_share();
  });
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

}  // namespace lockstep::hub
