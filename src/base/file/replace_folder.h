// A folder written beside takes the place of the one that stands there: a failure leaves the old one.
#pragma once

#include <filesystem>

#include "base/files.h"

namespace lockstep::base {

// `partial` becomes `whole`, durably. What stood there is `replaced` now, for the caller to remove; false where nothing did.
bool replace_folder(FileSystem& files, const std::filesystem::path& partial, const std::filesystem::path& whole,
                    const std::filesystem::path& replaced);

}  // namespace lockstep::base
