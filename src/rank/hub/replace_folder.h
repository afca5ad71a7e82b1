// A folder written beside takes the place of the one that stood there: a failure leaves the old one.
#pragma once

#include <filesystem>

#include "base/files.h"

namespace lockstep::hub {

void replace_folder(base::FileSystem& files, const std::filesystem::path& partial, const std::filesystem::path& folder);

}  // namespace lockstep::hub
