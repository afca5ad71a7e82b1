// A tape of the host's clock, and one of a GPU's through the plug-in.
#include "rank/kernels/tape.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/clock.h"
#include "base/mutex.h"
#include "rank/kernels/plugin.h"
#include "rank/kernels/progress_table.h"

namespace lockstep::kernels {
namespace {

void sort_by_time(std::vector<Tape::Mark>& marks) {
  std::stable_sort(marks.begin(), marks.end(), [](const Tape::Mark& a, const Tape::Mark& b) { return a.nanoseconds < b.nanoseconds; });
}

// Operations on a CPU have threads of their own.
class CpuTape final : public Tape {
 public:
  explicit CpuTape(std::int64_t most) : most_(static_cast<std::size_t>(most)) {}
  void mark(int what) override {
    const base::Lock lock(mutex_);
    if (marks_.size() < most_) marks_.push_back({what, base::now_ns()});
  }
  std::vector<Mark> take() override {
    const base::Lock lock(mutex_);
    return std::exchange(marks_, {});
  }

 private:
  const std::size_t most_;
  base::Mutex mutex_;
  std::vector<Mark> marks_ LOCKSTEP_GUARDED_BY(mutex_);
};

class CudaTape final : public Tape {
 public:
  CudaTape(at::Device device, std::int64_t most)
      : device_(device.index()), most_(most), tape_(at::zeros({1 + 2 * most}, at::TensorOptions().dtype(at::kLong).device(device))) {}
  void mark(int what) override {
    const CudaPlugin& plugin = cuda_plugin();
    plugin.progress->record(tape_.mutable_data_ptr<std::int64_t>(), most_, what, plugin.current_stream(device_));
  }
  std::vector<Mark> take() override {
    const at::Tensor host = tape_.cpu();
    tape_.zero_();
    const std::int64_t* numbers = host.const_data_ptr<std::int64_t>();
    std::vector<Mark> marks;
    for (std::int64_t i = 0; i < std::min(numbers[0], most_); ++i) marks.push_back({numbers[1 + 2 * i], numbers[2 + 2 * i]});
    sort_by_time(marks);
    return marks;
  }

 private:
  const int device_;
  const std::int64_t most_;
  at::Tensor tape_;  // how many marks there are, then what and when
};

}  // namespace

std::unique_ptr<Tape> make_tape(at::Device device, std::int64_t most) {
  if (device.is_cuda()) return std::make_unique<CudaTape>(device, most);
  return std::make_unique<CpuTape>(most);
}

}  // namespace lockstep::kernels
