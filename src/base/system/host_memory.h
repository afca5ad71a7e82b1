// How much host memory there is, and how much of it this process may still take.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep::base {

struct HostMemory {
  std::uint64_t total_bytes = 0, available_bytes = 0;
  std::optional<std::uint64_t> container_limit_bytes = {}, container_used_bytes = {};
  std::uint64_t usable() const;  // the smaller of what the machine has and what the container allows
};
HostMemory look_at_host_memory();

}  // namespace lockstep::base
