// What is about to run, for people to read before it starts.
#pragma once

#include <string>

#include "front/job/plan.h"
#include "layout/tables.h"

namespace lockstep::show {

std::string to_text(const job::RunPlan& plan, const config::RunConfig& config);
// "57 gathers (21.3 GiB), 30 reductions (13.3 GiB), as each rank receives them"
std::string in_one_line(const layout::Traffic& traffic);
// Who meets whom, and what a step moves; after they were looked through for every rank, in so many seconds.
std::string to_text(const layout::Tables& tables, double seconds);

}  // namespace lockstep::show
