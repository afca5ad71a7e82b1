// The one place where benchmarks read the clock.
#include "rank/bench/timing.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "rank/kernels/plugin.h"

namespace lockstep::bench {

void wait_for(at::Device device) {
  if (device.is_cuda()) kernels::cuda_plugin().synchronize(device.index());
}

Spread spread_of(std::vector<double> values) {
  base::check(!values.empty(), "a spread has at least one value");
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {.median = median, .min = values.front(), .max = values.back()};
}

std::vector<double> time_calls(at::Device device, int warm_up, int rounds, const std::function<void()>& work) {
  for (int i = 0; i < warm_up; ++i) work();
  wait_for(device);
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) {
    const std::int64_t start_ns = base::now_ns();
    work();
    wait_for(device);
    seconds.push_back(base::seconds_since(start_ns));
  }
  return seconds;
}

Spread time_short(at::Device device, const std::function<void()>& work, double group_seconds, int groups) {
  const double one = spread_of(time_calls(device, 2, 3, work)).median;
  const int calls = std::clamp(static_cast<int>(std::ceil(group_seconds / std::max(one, 1e-6))), 1, 1000);
  std::vector<double> seconds = time_calls(device, 0, groups, [&] {
    for (int i = 0; i < calls; ++i) work();
  });
  for (double& value : seconds) value /= calls;
  return spread_of(std::move(seconds));
}

}  // namespace lockstep::bench
