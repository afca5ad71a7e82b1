// In the CUDA plug-in: makes the NCCL backend.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <cstdlib>
#include <string>

#include "rank/comm/nccl_entry.h"

extern "C" __attribute__((visibility("default"))) const char* lockstep_make_nccl(c10::intrusive_ptr<c10d::Backend>* backend,
                                                                                 const c10::intrusive_ptr<c10d::Store>* store, int rank,
                                                                                 int size, double timeout_s, int device_index) {
  static std::string failure;
  // `lockstep` watches for stalls and names them; LibTorch's own monitor would end the process without a word about why.
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 0);
  ::setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", 0);
  // Buffers of recorded collectives lie in memory that grows in place (expandable segments), which NCCL cannot register.
  ::setenv("NCCL_GRAPH_REGISTER", "0", 0);
  try {
    auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    options->timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1000));
    auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::make_intrusive<c10d::PrefixStore>("nccl", *store), rank, size, options);
    group->eagerConnectSingleDevice(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device_index)));
    *backend = group;
    return nullptr;
  } catch (const std::exception& error) {
    failure = error.what();
    failure = failure.substr(0, failure.find('\n'));
    return failure.c_str();
  }
}
