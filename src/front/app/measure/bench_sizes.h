// Sizes of messages as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::app {

// "1K..1G" is 1 KiB to 1 GiB in steps of 4; "64K,1M,100" is a list. Rising, each a multiple of 4 (they hold f32). UserError if not.
std::vector<std::int64_t> parse_sizes(const std::string& text);

}  // namespace lockstep::app
