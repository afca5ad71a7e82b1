// LibTorch's own gradient reducer, as an oracle for ours.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>

#include "rank/comm/comm.h"

namespace lockstep::testing {

// Runs loss().backward() under c10d::Reducer over Gloo; afterwards each parameter's grad() is the mean over ranks.
void reduce_with_libtorch(const comm::Place& place, std::map<std::string, at::Tensor>& parameters, const std::function<at::Tensor()>& loss);

}  // namespace lockstep::testing
