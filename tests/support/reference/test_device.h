// Where tests of kernels and models run: on a CPU, or on CUDA when LOCKSTEP_TEST_DEVICE=cuda or cuda:K says so.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "rank/kernels/plugin.h"

namespace lockstep::test {

inline at::Device device() {
  const char* asked = std::getenv("LOCKSTEP_TEST_DEVICE");
  if (asked == nullptr || std::string_view(asked) == "cpu") return at::kCPU;
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);  // what cuBLAS needs to give the same bits every time
  kernels::cuda_plugin();                             // brings LibTorch's CUDA part in
  const at::Device device{std::string(asked)};
  return {device.type(), device.has_index() ? device.index() : c10::DeviceIndex(0)};
}

// The same bits every time, for tests that compare bits: attention's backward on CUDA otherwise sums in no fixed order.
class Deterministic {
 public:
  Deterministic() { at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false); }
  ~Deterministic() { at::globalContext().setDeterministicAlgorithms(false, false); }
  Deterministic(const Deterministic&) = delete;
};

inline at::Generator generator(std::uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); }

}  // namespace lockstep::test
