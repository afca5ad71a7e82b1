// Fingerprints of weights: of a tensor, and of all that adapters rest on.
#pragma once

#include <string>

#include "rank/parallel/replicate.h"

namespace lockstep::parallel {

// [2] i64 on its device: two sums over a tensor's bits, the second so that swapped parts show. A drift of the kind that happens (a missed
// or doubled update, another file) changes them.
at::Tensor sums_of_bits(const at::Tensor& tensor);

// Of all frozen units, whatever they are held as: other weights, another type or other quantization give another. Empty where all are
// trained. One pass over them on their device; waits for it.
std::string base_fingerprint(const Replica& replica);

}  // namespace lockstep::parallel
