// Where tests of kernels and models run: on a CPU, or on CUDA when LOCKSTEP_TEST_DEVICE=cuda or cuda:K says so.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "rank/kernels/session.h"

namespace lockstep::test {

inline at::Device device() {
  const char* asked = std::getenv("LOCKSTEP_TEST_DEVICE");
  if (asked == nullptr || std::string_view(asked) == "cpu") return at::kCPU;
  at::Device device{std::string(asked)};
  device = {device.type(), device.has_index() ? device.index() : c10::DeviceIndex(0)};
  static const auto& session = *new kernels::Session(device, /*deterministic=*/false);  // for all tests; at exit CUDA is gone before it
  static_cast<void>(session);
  return device;
}

// The same bits every time, for tests that compare bits: attention's backward on CUDA otherwise sums in no fixed order.
class Deterministic {
 public:
  Deterministic() : session_(device(), /*deterministic=*/true) {}

 private:
  kernels::Session session_;
};

inline at::Generator generator(std::uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); }

}  // namespace lockstep::test
