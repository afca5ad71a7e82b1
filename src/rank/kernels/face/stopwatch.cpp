// A stopwatch of the host's clock, and one of a GPU's through the plug-in.
#include "rank/kernels/stopwatch.h"

#include <ATen/ops/zeros.h>

#include "base/clock.h"
#include "rank/kernels/plugin.h"
#include "rank/kernels/progress_table.h"

namespace lockstep::kernels {
namespace {

at::Tensor zeros(std::int64_t count, at::ScalarType type, at::Device device) {
  return at::zeros({count}, at::TensorOptions().dtype(type).device(device));
}

class CpuStopwatch final : public Stopwatch {
 public:
  explicit CpuStopwatch(int parts) : seconds_(zeros(parts, at::kDouble, at::kCPU)) {}
  void enter(int part) override {
    const std::int64_t now = base::now_ns();
    if (since_ns_ != 0) seconds_.mutable_data_ptr<double>()[part_] += static_cast<double>(now - since_ns_) * 1e-9;
    since_ns_ = now;
    part_ = part;
  }
  const at::Tensor& seconds() const override { return seconds_; }

 private:
  at::Tensor seconds_;
  std::int64_t since_ns_ = 0;
  int part_ = 0;
};

class CudaStopwatch final : public Stopwatch {
 public:
  CudaStopwatch(at::Device device, int parts)
      : device_(device.index()), seconds_(zeros(parts, at::kDouble, device)), since_(zeros(2, at::kLong, device)) {}
  void enter(int part) override {
    const CudaPlugin& plugin = cuda_plugin();
    plugin.progress->enter(seconds_.mutable_data_ptr<double>(), since_.mutable_data_ptr<std::int64_t>(), part,
                           plugin.current_stream(device_));
  }
  const at::Tensor& seconds() const override { return seconds_; }

 private:
  const int device_;
  at::Tensor seconds_, since_;
};

}  // namespace

std::unique_ptr<Stopwatch> make_stopwatch(at::Device device, int parts) {
  if (device.is_cuda()) return std::make_unique<CudaStopwatch>(device, parts);
  return std::make_unique<CpuStopwatch>(parts);
}

}  // namespace lockstep::kernels
