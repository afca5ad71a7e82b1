// What is about to run, for people to read before it starts.
#pragma once

#include <string>

#include "front/job/plan.h"
#include "layout/tables.h"

namespace lockstep::show {

std::string to_text(const job::RunPlan& plan, const config::RunConfig& config);
// Who meets whom, and what a step moves; after they were looked through for every rank, in so many seconds.
std::string to_text(const layout::Tables& tables, double seconds);

}  // namespace lockstep::show
