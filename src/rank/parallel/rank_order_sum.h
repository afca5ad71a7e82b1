// Sums over ranks in rank order, on every backend.
#pragma once

#include "rank/comm/comm.h"

namespace lockstep::parallel {

// Collective. mine = the sum over ranks of their slice `rank()` of whole: added up in f32 from rank 0 on, rounded once to mine's type. As
// many bytes travel as by a reduce_scatter, whose order is the library's on NCCL. whole: size() times mine, same type; both untouched until
// the work was waited for.
comm::Work reduce_in_rank_order(const comm::Group& group, const at::Tensor& mine, const at::Tensor& whole, std::string_view what);

// The memory that it would take beside these, and nothing else.
comm::Work rehearse_in_rank_order(const at::Tensor& whole);

}  // namespace lockstep::parallel
