// What to change where a run needs more memory than its devices have: said before it starts, and again when a rank has run out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "front/job/setup.h"

namespace lockstep::job {

// What a rank may use, and what others hold there already.
struct DeviceRoom {
  std::string name;  // "GPU 1 (NVIDIA H200)", "Each of 2 ranks of this host"
  std::int64_t bytes = 0;
  std::int64_t taken = 0;
  std::vector<std::string> holders = {};  // who they are, where the driver tells: "pid 4711 python, 2.0 GiB"
};

// For the header: nothing where it fits, or where nobody knows what there is.
std::optional<std::string> memory_note(const Setup& setup);

bool tells_of_full_memory(const std::string& report);
// Lines for the report of a rank that ran out: what was planned part by part, what the device has, and the smallest change that fits.
std::string after_full_memory(const Setup& setup, const DeviceRoom& room);
// What a rank can have now that ours are gone: the device with the least room, or its share of the host.
DeviceRoom least_room(const Setup& setup, const launch::Environment& environment);

}  // namespace lockstep::job
