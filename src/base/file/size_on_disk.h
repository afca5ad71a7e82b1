// What a folder takes up on its disk.
#pragma once

#include <cstdint>
#include <filesystem>

namespace lockstep::base {

// In bytes: what deleting it would free. Links are not followed, a file of several names counts once, what cannot be read not at all.
std::uint64_t size_on_disk(const std::filesystem::path& folder);

}  // namespace lockstep::base
