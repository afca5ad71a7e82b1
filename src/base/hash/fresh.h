// Numbers that nobody else has: for ids and tokens, never for training.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::base {

// From the kernel. Not std::random_device: in a program with its own libstdc++ that asks for a newer C library than all the rest does.
std::uint32_t fresh_bits();
// `words` times eight hexadecimal digits.
std::string fresh_id(int words);

}  // namespace lockstep::base
