// In the CUDA plug-in: what it exports, and the questions about a device that only LibTorch's CUDA part can answer.
#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cstdio>

#include "rank/kernels/plugin.h"
#include "rank/kernels/plugin/session.h"

namespace lockstep::kernels {

namespace cuda {
const Table& table();
const Fp8Table& fp8_table();
const GraphTable& graph_table();
const RaggedTable& ragged_table();
const ProgressTable& progress_table();
const HoldTable& hold_table();
}  // namespace cuda

namespace {

Stream current_stream(int device) {
  c10::cuda::MaybeSetDevice(static_cast<c10::DeviceIndex>(device));
  return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream();
}

void synchronize(int device) { C10_CUDA_CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(current_stream(device)))); }

constexpr auto kAggregate = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

std::uint64_t peak_memory_bytes(int device) {
  // Nothing was allocated yet: the allocator has no figures for this device.
  if (!c10::cuda::CUDACachingAllocator::get()->initialized()) return 0;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
  return static_cast<std::uint64_t>(stats.allocated_bytes[kAggregate].peak);
}

void reset_peak_memory(int device) {
  if (c10::cuda::CUDACachingAllocator::get()->initialized())
    c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(device));
}

void free_memory_bytes(int device, std::uint64_t* free, std::uint64_t* total) {
  current_stream(device);
  std::size_t free_bytes = 0, total_bytes = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  *free = free_bytes;
  *total = total_bytes;
}

void device_name(int device, char* text, int capacity) {
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  std::snprintf(text, static_cast<std::size_t>(capacity), "%s", properties.name);
}

int capability(int device) {
  int major = 0, minor = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
}

int device_count() { return c10::cuda::device_count(); }

void set_allocator(const char* settings) { c10::CachingAllocator::setAllocatorSettings(settings); }

}  // namespace
}  // namespace lockstep::kernels

extern "C" __attribute__((visibility("default"))) const lockstep::kernels::CudaPlugin* lockstep_cuda_plugin() {
  using namespace lockstep::kernels;
  static const CudaPlugin plugin{.version = kCudaPluginVersion,
                                 .table = &cuda::table(),
                                 .fp8 = &cuda::fp8_table(),
                                 .graphs = &cuda::graph_table(),
                                 .ragged = &cuda::ragged_table(),
                                 .progress = &cuda::progress_table(),
                                 .hold = &cuda::hold_table(),
                                 .current_stream = current_stream,
                                 .synchronize = synchronize,
                                 .peak_memory_bytes = peak_memory_bytes,
                                 .reset_peak_memory = reset_peak_memory,
                                 .free_memory_bytes = free_memory_bytes,
                                 .device_name = device_name,
                                 .capability = capability,
                                 .device_count = device_count,
                                 .set_allocator = set_allocator,
                                 .open_session = cuda::open_session,
                                 .use_session = cuda::use_session,
                                 .close_session = cuda::close_session};
  return &plugin;
}
