// Time: one monotonic clock, the same for all processes of a machine.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::base {

std::int64_t now_ns();  // CLOCK_MONOTONIC
double seconds_since(std::int64_t start_ns);
std::string utc_time();  // "2026-01-31T12:00:00Z"

}  // namespace lockstep::base
