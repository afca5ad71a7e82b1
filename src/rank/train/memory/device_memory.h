// What the device of this rank is, and how much of its memory the process took at most.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::train {

std::int64_t peak_memory_bytes(at::Device device);
// What the driver counts as taken on this device, by every process, when the allocator held most: context, reserves and libraries' buffers
// included. 0 on a CPU.
std::int64_t driver_memory_bytes(at::Device device);
// The most memory of the host that this process held at once.
std::int64_t peak_host_memory_bytes();
// What is left for activations; on a CPU, which pages, more than anything needs.
std::int64_t free_memory_bytes(at::Device device);
// All that the device has; nothing on a CPU.
std::optional<std::int64_t> total_memory_bytes(at::Device device);
// What the allocator keeps for later goes back to the device.
void empty_cache(at::Device device);
std::string describe_device(at::Device device);  // "NVIDIA H200", "cpu (AMD EPYC ..., 2 threads)"

}  // namespace lockstep::train
