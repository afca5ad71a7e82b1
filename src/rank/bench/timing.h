// Times work on a device: the clock is read only when the device has finished.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <vector>

namespace lockstep::bench {

void wait_for(at::Device device);

struct Spread {
  double median = 0, min = 0, max = 0;
};
Spread spread_of(std::vector<double> values);  // not empty

// Seconds of each of `rounds` calls, the device waited for around every one; `warm_up` calls before them are left out.
std::vector<double> time_calls(at::Device device, int warm_up, int rounds, const std::function<void()>& work);

// Seconds of one call of short work: calls are put in groups long enough (about `group_seconds`) that waiting for the device does not show.
Spread time_short(at::Device device, const std::function<void()>& work, double group_seconds = 0.02, int groups = 5);

}  // namespace lockstep::bench
