// Links that are not there: one process is one rank of many, its collectives take as long as stated, and move this rank's bytes only.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>
#include <vector>

namespace lockstep::comm {

// Keeps a device busy as a collective's kernels do: from begin() on, for so long.
class Holder {
 public:
  virtual ~Holder() = default;
  // On the current stream. clock: an i64 scalar of the device, where hold() finds when it began.
  virtual void begin(const at::Tensor& clock, std::string_view kind) = 0;
  virtual void hold(const at::Tensor& clock, std::string_view kind, double seconds) = 0;
};

// What one rank receives from others, at most, and what an operation costs beside its bytes.
struct ModelledLink {
  double bytes_per_second = 0;  // 0: any number of bytes takes no time
  double latency_s = 0;

  double seconds(double bytes) const { return latency_s + (bytes_per_second > 0 ? bytes / bytes_per_second : 0); }
};
struct ModelledLinks {
  ModelledLink within, between;  // ranks of one machine, and of several
  int machine = 8;               // ranks of a machine
  std::shared_ptr<Holder> holder;

  const ModelledLink& of(const std::vector<int>& members) const {
    return members.front() / machine == members.back() / machine ? within : between;
  }
};

}  // namespace lockstep::comm
