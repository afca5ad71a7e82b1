// What is about to run, for people to read before it starts.
#pragma once

#include <string>

#include "front/job/plan.h"

namespace lockstep::show {

std::string to_text(const job::RunPlan& plan, const config::RunConfig& config);

}  // namespace lockstep::show
