// A fingerprint of the weights that adapters rest on.
#pragma once

#include <string>

#include "rank/parallel/replicate.h"

namespace lockstep::parallel {

// Of all frozen units, whatever they are held as: other weights, another type or other quantization give another. Empty where all are
// trained. One pass over them on their device; waits for it.
std::string base_fingerprint(const Replica& replica);

}  // namespace lockstep::parallel
