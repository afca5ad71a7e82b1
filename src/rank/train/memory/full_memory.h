// Memory that ran out, the device's or the host's: told with what this rank held.
#pragma once

#include <c10/util/Exception.h>

#include <optional>
#include <string_view>

#include "base/error.h"

namespace lockstep::train {

struct Run;

// Nothing: the error is another one. run: what was training, where something was.
std::optional<base::UserError> full_memory(const c10::Error& error, const Run* run = nullptr);
// Ranks of a machine share its memory. asked: how much more, or "".
base::UserError full_host(std::string_view asked);

}  // namespace lockstep::train
