// Deals units out.
#include "rank/parallel/replicated_store.h"

#include "layout/spread/placement.h"

namespace lockstep::parallel {

std::vector<model::HeldSlice> dealt_out(std::span<const model::HeldSlice> units, int rank, int ranks) {
  std::vector<layout::Slice> whole;
  for (std::size_t i = 0; i < units.size(); ++i) whole.push_back({i, 0, units[i].count});
  std::vector<model::HeldSlice> mine;
  const std::vector<std::vector<layout::Slice>> by_rank = layout::dealt_by_rank(std::move(whole), ranks);
  for (const layout::Slice& one : by_rank[static_cast<std::size_t>(rank)]) mine.push_back(units[one.unit]);
  return mine;
}

void ReplicatedStore::deal(int rank, int ranks) {
  rank_ = rank;
  ranks_ = ranks;
  look_again();
}

void ReplicatedStore::look_again() {
  WholeStore::look_again();
  counts_ = dealt_out(updates(), rank_, ranks_);
}

}  // namespace lockstep::parallel
