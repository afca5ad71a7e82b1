// What the device of this rank is, and how much of its memory the process took at most.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace lockstep::train {

std::int64_t peak_memory_bytes(at::Device device);
// What is left for activations; on a CPU, which pages, more than anything needs.
std::int64_t free_memory_bytes(at::Device device);
// What the allocator keeps for later goes back to the device.
void empty_cache(at::Device device);
std::string describe_device(at::Device device);  // "NVIDIA H200", "cpu (AMD EPYC ..., 2 threads)"

}  // namespace lockstep::train
