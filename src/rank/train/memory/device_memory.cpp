// Asks the operating system, or the CUDA plug-in.
#include "rank/train/memory/device_memory.h"

#include <sys/resource.h>

#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <fstream>

#include "base/text.h"
#include "rank/kernels/plugin.h"

namespace lockstep::train {

std::int64_t peak_memory_bytes(at::Device device) {
  if (device.is_cuda()) return static_cast<std::int64_t>(kernels::cuda_plugin().peak_memory_bytes(device.index()));
  return peak_host_memory_bytes();
}

std::int64_t driver_memory_bytes(at::Device device) {
  if (!device.is_cuda()) return 0;
  std::uint64_t free = 0, total = 0;
  kernels::cuda_plugin().free_memory_bytes(device.index(), &free, &total);
  const auto stats = at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  const auto& reserved = stats.reserved_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  return static_cast<std::int64_t>(total - free) + reserved.peak - reserved.current;
}

std::int64_t peak_host_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

std::int64_t free_memory_bytes(at::Device device) {
  if (!device.is_cuda()) return std::int64_t{1} << 60;
  std::uint64_t free = 0, total = 0;
  kernels::cuda_plugin().free_memory_bytes(device.index(), &free, &total);
  return static_cast<std::int64_t>(free);
}

std::optional<std::int64_t> total_memory_bytes(at::Device device) {
  if (!device.is_cuda()) return std::nullopt;
  std::uint64_t free = 0, total = 0;
  kernels::cuda_plugin().free_memory_bytes(device.index(), &free, &total);
  return static_cast<std::int64_t>(total);
}

void empty_cache(at::Device device) {
  if (!device.is_cpu()) at::getDeviceAllocator(device.type())->emptyCache();
}

std::string describe_device(at::Device device) {
  if (device.is_cuda()) {
    char name[128] = "";
    kernels::cuda_plugin().device_name(device.index(), name, sizeof name);
    return name;
  }
  std::ifstream processor("/proc/cpuinfo");
  for (std::string line; std::getline(processor, line);) {
    if (line.starts_with("model name"))
      return fmt::format("cpu ({}, {} threads)", base::trim(line.substr(line.find(':') + 1)), at::get_num_threads());
  }
  return fmt::format("cpu ({} threads)", at::get_num_threads());
}

}  // namespace lockstep::train
