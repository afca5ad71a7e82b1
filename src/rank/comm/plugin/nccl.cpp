// In the CUDA plug-in: makes the NCCL backend.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <string>

#include "rank/comm/nccl_entry.h"

extern "C" __attribute__((visibility("default"))) bool lockstep_make_nccl(c10::intrusive_ptr<c10d::Backend>& backend,
                                                                          const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                                          double timeout_s, int device_index, std::string& why) {
  try {
    auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    options->timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1000));
    auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::make_intrusive<c10d::PrefixStore>("nccl", store), rank, size, options);
    group->eagerConnectSingleDevice(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device_index)));
    backend = group;
    return true;
  } catch (const std::exception& error) {
    why = error.what();
    why = why.substr(0, why.find('\n'));
    return false;
  }
}
