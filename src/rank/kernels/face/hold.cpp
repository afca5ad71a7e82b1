// A kernel on CUDA; on a CPU the thread sleeps.
#include "rank/kernels/hold.h"

#include <cmath>
#include <thread>

#include "base/clock.h"
#include "rank/kernels/hold_table.h"
#include "rank/kernels/plugin.h"

namespace lockstep::kernels {

void begin_hold(const at::Tensor& clock) {
  if (clock.is_cpu())
    *clock.mutable_data_ptr<std::int64_t>() = base::now_ns();
  else
    cuda_plugin().hold->begin(clock.mutable_data_ptr<std::int64_t>(), cuda_plugin().current_stream(clock.get_device()));
}

void hold(const at::Tensor& clock, double seconds, int blocks) {
  const auto nanoseconds = static_cast<std::int64_t>(std::llround(seconds * 1e9));
  if (clock.is_cpu()) {
    const std::int64_t left = *clock.const_data_ptr<std::int64_t>() + nanoseconds - base::now_ns();
    if (left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left));
  } else {
    cuda_plugin().hold->hold(clock.const_data_ptr<std::int64_t>(), nanoseconds, blocks, cuda_plugin().current_stream(clock.get_device()));
  }
}

}  // namespace lockstep::kernels
