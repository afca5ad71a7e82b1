// Division that rounds up.
#pragma once

#include <cstdint>

namespace lockstep::base {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace lockstep::base
