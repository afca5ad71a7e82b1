// Brings a model folder's weights to the device: pages read ahead by threads, pinned buffers in turn, conversion on the device.
#include <algorithm>
#include <array>
#include <cstring>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/ceil_div.h"
#include "base/error.h"
#include "rank/hub/bnb.h"
#include "rank/hub/hub_folder.h"
#include "rank/hub/quantize_together.h"
#include "rank/hub/send_unit.h"
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
  const std::size_t element = c10::elementSize(tensor->entry->dtype);
  return tensor->file->bytes(*tensor->entry)
      .subspan(static_cast<std::size_t>(wanted.begin) * element, static_cast<std::size_t>(wanted.count) * element);
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
    receive(wanted[i].name, folder.view(wanted[i].name, wanted[i].begin, wanted[i].count));
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

// What is read of a folder, in order, and who takes it.
class Reading {
 public:
  using Take = std::function<void(const at::Tensor& numbers)>;
  explicit Reading(const HubFolder& folder) : folder_(folder) {}

  void add(const std::string& name, std::int64_t begin, std::int64_t count, Take take) {
    if (count == 0) return;
    wanted_.push_back({name, begin, count});
    takes_[name] = std::move(take);
    bytes_ += bytes_of(folder_, wanted_.back()).size();
  }
  // What is read beside: levels and maps of four bits, which every rank has, and what is said of them.
  void count_small(const std::string& name) {
    for (const std::string& part : bnb_part_names(name)) {
      const HubFolder::Tensor* tensor = folder_.find(part);
      const bool scales = part.ends_with("absmax");
      if (tensor != nullptr && !scales) bytes_ += tensor->file->bytes(*tensor->entry).size();
    }
  }
  // Between what was added before and what is added after.
  void then(std::function<void()> step) { steps_.emplace_back(wanted_.size(), std::move(step)); }
  std::uint64_t bytes() const { return bytes_; }

  void run() {
    std::size_t taken = 0, step = 0;
    const auto go_on = [&] {
      for (; step < steps_.size() && steps_[step].first <= taken; ++step) steps_[step].second();
    };
    go_on();
    walk(folder_, wanted_, [&](const std::string& name, const at::Tensor& numbers) {
      takes_.at(name)(numbers);
      ++taken;
      go_on();
    });
  }

 private:
  const HubFolder& folder_;
  std::vector<WantedNumbers> wanted_;
  std::map<std::string, Take> takes_;
  std::vector<std::pair<std::size_t, std::function<void()>>> steps_;
  std::uint64_t bytes_ = 0;
};

std::uint64_t bytes_in(const HubFolder& folder, const model::UnitSpec& unit) {
  std::uint64_t bytes = 0;
  for (const model::LeafSpec& leaf : unit.leaves)
    for (const model::Piece& piece : leaf.pieces) bytes += folder.find(piece.name)->entry->bytes();
  return bytes;
}

// One unit after another, each piece by the way that its folder and its unit hold it.
class Loading {
 public:
  Loading(const HubFolder& folder, const std::vector<std::unique_ptr<model::Unit>>& units, const LoadingRanks& ranks)
      : folder_(folder), ranks_(ranks), targets_(targets_of(units)), upload_(units.front()->weights().device()), reading_(folder) {
    std::vector<std::uint64_t> given(static_cast<std::size_t>(ranks.groups));  // bytes, by group: the next unit goes to whoever has least
    for (const auto& unit : units) {
      const auto least = std::min_element(given.begin(), given.end());
      *least += bytes_in(folder, unit->spec());
      const auto from = static_cast<int>(least - given.begin());
      if (from == ranks.group) add(*unit);
      if (ranks.groups > 1) reading_.then([this, &held = *unit, from] { send_unit(held, from, ranks_); });
    }
  }

  std::uint64_t bytes() const { return reading_.bytes(); }
  void run() {
    reading_.run();
    upload_.finish();
  }

 private:
  void add(const model::Unit& unit) {
    const bool packed = unit.shard() && unit.shard()->packed;
    auto together = packed && ranks_.gather ? std::make_shared<QuantizeTogether>(*unit.shard(), ranks_.gather) : nullptr;
    // Only this rank's bytes are written where the folder has them as they are; those between matrices stay zero.
    if (packed) reading_.then([&unit] { own_bytes(unit).zero_(); });
    for (const model::LeafSpec& leaf : unit.spec().leaves) {
      for (const model::Piece& piece : leaf.pieces) {
        const Target& target = targets_.at(piece.name);
        if (folder_.find(piece.name)->entry->dtype == at::kByte)
          target.matrix != nullptr&& packed ? add_own_codes(unit, target) : add_codes(target);
        else if (target.matrix != nullptr && together)
          add_part(target, together);
        else
          add_numbers(target);
      }
    }
    reading_.then([&unit, together] {
      if (together) together->finish();
      unit.keep_share();
    });
  }

  // Numbers that are held as numbers, or all of a matrix that this rank quantizes by itself.
  void add_numbers(const Target& target) {
    reading_.add(target.piece.name, target.begin, target.count(), [this, &target](const at::Tensor& host) {
      if (target.matrix == nullptr) return upload_.copy(host, target.views);
      const at::Tensor whole = on_device(host, *target.matrix);  // gone when its codes are made
      target.matrix->store(target.index, whole);
    });
  }

  void add_part(const Target& target, const std::shared_ptr<QuantizeTogether>& together) {
    const QuantizeTogether::Part part = together->add(*target.matrix, target.index);
    reading_.add(target.piece.name, part.begin, part.count,
                 [this, &target, together, part](const at::Tensor& host) { together->take(part, on_device(host, *target.matrix)); });
  }

  // Codes of a piece, of which this rank keeps those bytes that lie in its share of the unit.
  void add_own_codes(const model::Unit& unit, const Target& target) {
    expect_nf4(target);
    reading_.count_small(target.piece.name);
    const kernels::QuantizedBlocks blocks = read_bnb(folder_, target.piece);
    target.matrix->assign_beside(target.index, blocks);
    const kernels::QuantizedBlocks& held = target.matrix->piece(target.index);
    const auto add = [&](const char* part, const at::Tensor& whole) {
      if (!whole.defined()) return;
      const Numbers mine = own_numbers(unit, whole);
      const at::Tensor here = whole.narrow(0, mine.begin, mine.count);
      reading_.add(target.piece.name + part, mine.begin, mine.count, [here](const at::Tensor& host) { here.copy_(host.view({-1})); });
    };
    add("", held.codes);
    add(".absmax", held.scales);
    add(".nested_absmax", held.outer);
  }

  // Codes of a piece that is held whole, or as numbers. Scales come first: they are small, and are kept until the codes are there.
  void add_codes(const Target& target) {
    if (target.matrix != nullptr) expect_nf4(target);
    reading_.count_small(target.piece.name);
    auto blocks = std::make_shared<kernels::QuantizedBlocks>(read_bnb(folder_, target.piece));
    const BlockRange range(target, blocks->outer.defined());
    const auto add_scales = [&](const char* part, std::int64_t numbers, at::Tensor kernels::QuantizedBlocks::*place) {
      const Numbers some = range.in_units_of(numbers);
      reading_.add(target.piece.name + part, some.begin, some.count,
                   [blocks, place](const at::Tensor& host) { (*blocks).*place = host.view({-1}).clone(); });
    };
    add_scales(".absmax", kernels::kWeightBlock, &kernels::QuantizedBlocks::scales);
    if (blocks->outer.defined())
      add_scales(".nested_absmax", kernels::kWeightBlock * kernels::kScaleBlock, &kernels::QuantizedBlocks::outer);
    const Numbers codes = range.in_units_of(2);  // a byte holds two
    reading_.add(target.piece.name, codes.begin, codes.count, [&target, blocks, range](const at::Tensor& host) {
      blocks->codes = host.view({-1});
      if (target.matrix != nullptr) return target.matrix->assign(target.index, *blocks);
      for (const at::Tensor& view : target.views) range.dequantize(*blocks, view);
    });
  }

  struct Numbers {
    std::int64_t begin, count;
  };
  // Numbers of a piece that are held, and those about them whose codes and scales begin and end together.
  class BlockRange {
   public:
    BlockRange(const Target& target, bool nested) : begin_(target.begin), count_(target.count()), all_(target.piece.elements()) {
      const std::int64_t grain = kernels::kWeightBlock * (nested ? kernels::kScaleBlock : 1);
      first_ = count_ == 0 ? 0 : begin_ / grain * grain;
      last_ = count_ == 0 ? 0 : std::min(all_, base::ceil_div(begin_ + count_, grain) * grain);
    }
    Numbers in_units_of(std::int64_t numbers) const { return {first_ / numbers, base::ceil_div(last_, numbers) - first_ / numbers}; }
    void dequantize(const kernels::QuantizedBlocks& blocks, const at::Tensor& out) const {
      if (first_ == begin_ && last_ == begin_ + count_) return model::dequantize_into(out, blocks);
      const at::Tensor more = at::empty({last_ - first_}, out.options());  // gone when the numbers that are held are taken
      model::dequantize_into(more, blocks);
      out.view({-1}).copy_(more.narrow(0, begin_ - first_, count_));
    }

   private:
    std::int64_t begin_, count_, all_, first_, last_;
  };

  static at::Tensor own_bytes(const model::Unit& unit) {
    return unit.gathered_weights().narrow(0, unit.shard()->index * unit.shard()->room, unit.shard()->room);
  }
  // Of a tensor that lies in the unit's memory, those that this rank's bytes are of.
  static Numbers own_numbers(const model::Unit& unit, const at::Tensor& whole) {
    const auto element = static_cast<std::int64_t>(whole.element_size());
    const auto* base = static_cast<const std::byte*>(unit.gathered_weights().const_data_ptr());
    const std::int64_t at = static_cast<const std::byte*>(whole.const_data_ptr()) - base;
    const std::int64_t begin = unit.shard()->index * unit.shard()->room - at, end = begin + unit.shard()->room;
    const std::int64_t first = std::clamp<std::int64_t>(begin, 0, whole.numel() * element) / element;
    const std::int64_t last = base::ceil_div(std::clamp<std::int64_t>(end, 0, whole.numel() * element), element);
    return {first, last - first};
  }

  at::Tensor on_device(const at::Tensor& host, const model::QuantizedMatrix& matrix) {
    at::Tensor there = at::empty(host.sizes(), matrix.options());
    upload_.copy(host, std::span(&there, 1));
    return there;
  }

  void expect_nf4(const Target& target) const {
    if (target.matrix->kind() == kernels::Codes::nf4) return;
    throw base::checkpoint_error("model", "{} holds its weights in four bits; load_in_8bit cannot hold them better. Use load_in_4bit.",
                                 folder_.path().string());
  }

  const HubFolder& folder_;
  const LoadingRanks& ranks_;
  const std::map<std::string, Target> targets_;
  Upload upload_;
  Reading reading_;
};

}  // namespace

at::Tensor whole_weight(const HubFolder& folder, const model::Piece& piece, at::ScalarType dtype) {
  at::Tensor view = folder.view(piece.name);
  if (view.scalar_type() != at::kByte) return view;
  at::Tensor whole = at::empty(piece.shape, dtype);
  model::dequantize_into(whole, read_bnb(folder, piece));
  return whole;
}

Loaded load_units(const HubFolder& folder, const std::vector<std::unique_ptr<model::Unit>>& units, const LoadingRanks& ranks) {
  std::vector<model::UnitSpec> specs;
  for (const auto& unit : units) specs.push_back(unit->spec());
  Loaded loaded{.notes = folder.check(specs)};
  for (const auto& [name, tensor] : folder.tensors()) loaded.bytes_held += tensor.file->bytes(*tensor.entry).size();
  Loading loading(folder, units, ranks);
  loaded.bytes_read = loading.bytes();
  loading.run();
  return loaded;
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
