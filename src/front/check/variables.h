// Environment variables of CUDA, NCCL, Gloo, OpenMP and others that matter here: what each does, and which values slow or break a run.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "front/check/check.h"

namespace lockstep::check {

struct Variable {
  std::string_view name;  // or its beginning, with a * at the end
  std::string_view does;  // here
};
// In the order in which they are shown.
std::span<const Variable> known_variables();
// The one of the table that a name belongs to; null: none.
const Variable* find_variable(std::string_view name);

// `interfaces`: those of this machine that are up.
std::vector<Finding> judge_variables(const launch::Environment& environment, std::span<const std::string> interfaces);
std::vector<std::string> network_interfaces();

}  // namespace lockstep::check
