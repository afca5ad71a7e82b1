// Progress of a CPU, which is the host's own, and of CUDA through the plug-in.
#include <atomic>

#include "rank/kernels/plugin.h"
#include "rank/kernels/progress.h"
#include "rank/kernels/progress_table.h"

namespace lockstep::kernels {
namespace {

class CpuProgress final : public Progress {
 public:
  void mark() override { ++count_; }
  std::uint64_t count() const override { return count_; }

 private:
  std::atomic<std::uint64_t> count_ = 0;
};

class CudaProgress final : public Progress {
 public:
  explicit CudaProgress(int device) : device_(device), counters_(cuda_plugin().progress->make(device)) {}
  ~CudaProgress() override { cuda_plugin().progress->destroy(counters_); }
  void mark() override { cuda_plugin().progress->mark(counters_, cuda_plugin().current_stream(device_)); }
  std::uint64_t count() const override { return *counters_.host; }

 private:
  const int device_;
  const ProgressCounters counters_;
};

}  // namespace

std::shared_ptr<Progress> make_progress(at::Device device) {
  if (device.is_cuda()) return std::make_shared<CudaProgress>(device.index());
  return std::make_shared<CpuProgress>();
}

}  // namespace lockstep::kernels
