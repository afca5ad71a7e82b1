// What all ways of reducing gradients share: the type that travels, and what is said of parameters that got none.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "config/run_config.h"
#include "rank/model/layout.h"

namespace lockstep::parallel {

// What ranks exchange. The weights' type is enough: each rank's own sum is rounded to it once.
at::ScalarType wire_type(const config::ParallelConfig& options, at::ScalarType weights, at::ScalarType gradients);

void add_names(std::vector<std::string>& names, const model::LeafSpec& leaf);
base::UserError without_gradient(int rank, const std::vector<std::string>& names);

}  // namespace lockstep::parallel
