// Text from a finished or running run: its config, its newest whole checkpoint, a prompt.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "rank/task/task.h"

namespace lockstep::train {

struct GenerateRequest {
  std::filesystem::path run;         // run folder
  std::filesystem::path checkpoint;  // empty: the newest whole one
  std::string prompt;
  at::Device device = at::kCPU;
  task::SampleOptions sampling;
};
GenerateRequest parse_generate_request(const std::map<std::string, std::string>& arguments, at::Device device);
std::string generate(const GenerateRequest& request);

}  // namespace lockstep::train
