// Time: one monotonic clock, the same for all processes of a machine.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::base {

std::int64_t now_ns();  // CLOCK_MONOTONIC
double seconds_since(std::int64_t start_ns);
std::string utc_time();                     // "2026-01-31T12:00:00Z"
std::string time_label(std::int64_t time);  // of seconds since 1970, in local time and fit for a file name: "20260131-120000"

}  // namespace lockstep::base
