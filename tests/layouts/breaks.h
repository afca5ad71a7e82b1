// Rules of sharding, broken one at a time: a table that stays green then proves nothing.
#pragma once

#include <string_view>

#include "rank/parallel/replicate.h"

namespace lockstep::layouts {

enum class Break {
  none,
  skip_a_reduction,        // gradients of one unit do not reach other ranks
  scale_by_ranks,          // a sum is taken for a mean
  drop_the_tied_gradient,  // what the head adds to the embedding's matrix
  pad_with_garbage,        // numbers behind a unit's last leaf
  count_a_slice_twice,     // in the norm
  shift_a_slice,           // a gathered slice lies one element off
  use_a_stale_slot,        // weights of the step before
  gather_before_update,    // what comes early is of the step before
  forget_the_last_bytes,   // of a frozen unit
  nothing_but_replay,      // no rule: micro-steps are launched as recordings, which nobody may notice
  nothing_but_short,       // no rule: memory runs out in the middle of a layer while micro-batches are tried for size
};
std::string_view name_of(Break rule);

// Puts a store that breaks the rule before the one that the units have. rank: among those that train the case.
void break_store(parallel::Replica& replica, Break rule, int rank);

}  // namespace lockstep::layouts
