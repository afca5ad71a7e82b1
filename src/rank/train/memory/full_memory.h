// What a CPU without memory throws: PyTorch's allocator there knows no type of its own for it.
#pragma once

#include <c10/util/Exception.h>

#include <optional>
#include <string>

namespace lockstep::train {

// Where the error says that the host's memory is full: what was asked for, " (4.0 MiB more were asked for)", or "".
std::optional<std::string> tells_of_full_host(const c10::Error& error);

}  // namespace lockstep::train
