// What this device can do at best, measured: bytes a second of a large copy, operations a second of a large matrix product.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace lockstep::bench {

struct Ceilings {
  double bytes_per_second = 0;  // read and written bytes both count
  double flops_per_second = 0;  // in `dtype`
  std::int64_t copy_bytes = 0;  // of the buffer that was copied
  std::int64_t matmul_size = 0;
};
Ceilings measure_ceilings(at::Device device, at::ScalarType dtype);

}  // namespace lockstep::bench
