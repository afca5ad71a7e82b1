// Files are dealt out by their number, tensors to whoever has read least.
#include "rank/train/resume/read_together.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "rank/train/resume/from_first.h"

namespace lockstep::train {
namespace {

void verify_share(const comm::Group& group, const checkpoint::Reader& reader) {
  reader.verify({group.rank(), group.size()});
  base::log_info("[resume] looked through {} bytes of {}", reader.bytes_read(), reader.folder().string());
}

// Collective. What the first of the ranks says that found something.
std::string damage_found(const comm::Group& group, const checkpoint::Reader& reader) {
  std::string damage;
  try {
    verify_share(group, reader);
  } catch (const base::UserError& error) {
    damage = error.what();
  }
  group.meet("verifying the checkpoint");
  return first_text(group, damage, "damage of a checkpoint");
}

}  // namespace

void verify_together(const comm::Group& group, const std::filesystem::path& checkpoint) {
  verify_share(group, checkpoint::Reader(checkpoint));
  group.meet("verifying the checkpoint");
}

// What rank 0 can open others must be able to: one that cannot ends the run, because going on without a checkpoint that is there would
// throw it away.
Found newest_whole_together(const comm::Group& group, const std::filesystem::path& folder) {
  const auto told = [&](const std::string& name) { return text_from_first(group, name, "checkpoint to look through"); };
  group.meet("looking for a checkpoint");
  std::string chosen;
  Found result;
  if (group.rank() == 0) {
    const auto found = checkpoint::newest_whole(folder, &result.skipped, [&](const std::filesystem::path& one) {
      const checkpoint::Reader reader(one);
      told(one.filename().string());
      return damage_found(group, reader);
    });
    told({});
    if (found) chosen = found->filename().string();
  } else {
    for (std::string name = told({}); !name.empty(); name = told({})) damage_found(group, checkpoint::Reader(folder / name));
  }
  chosen = text_from_first(group, chosen, "checkpoint to resume from");
  if (!chosen.empty()) result.checkpoint = folder / chosen;
  return result;
}

TensorReading::TensorReading(const checkpoint::Reader& reader, const comm::Group* replicas)
    : reader_(reader), replicas_(replicas != nullptr && replicas->size() > 1 ? replicas : nullptr) {
  if (replicas_ != nullptr) load_.resize(static_cast<std::size_t>(replicas_->size()));
}

void TensorReading::read_here(std::string_view kind, const model::NamedSlice& slice) const {
  if (slice.view.sizes() == at::IntArrayRef(slice.shape)) return reader_.read(kind, slice.name, slice.view);
  reader_.read_slice(kind, slice.name, slice.begin, slice.view);
}

void TensorReading::read(std::string_view kind, std::span<const model::NamedSlice> slices) {
  for (const model::NamedSlice& slice : slices) {
    const bool whole = slice.view.sizes() == at::IntArrayRef(slice.shape);  // perhaps empty: its shape is compared all the same
    if (replicas_ == nullptr || slice.view.numel() == 0) {
      if (whole || slice.view.numel() > 0) read_here(kind, slice);
      continue;
    }
    const auto least = std::min_element(load_.begin(), load_.end());
    *least += slice.view.nbytes();
    const auto from = static_cast<int>(least - load_.begin());
    if (from == replicas_->rank()) read_here(kind, slice);
    const at::Tensor sent = slice.view.contiguous();
    replicas_->broadcast(sent, from, slice.name).wait();
    if (!sent.is_same(slice.view)) slice.view.copy_(sent);
  }
}

}  // namespace lockstep::train
