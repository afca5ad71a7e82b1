// Why the system refused a path: its own words, and what stands in the way and where.
#pragma once

#include <filesystem>
#include <string>

#include "base/error.h"

namespace lockstep::base {

enum class Access { read, write, any };

// "Not a directory: /runs is a file, and a folder is needed there", "Permission denied: user ann may not write to /runs". `error` is errno.
std::string why_refused(const std::filesystem::path& path, int error, Access access);

// UserError(usage) where this user may not look at the path, or into the folder that it is: to be asked before "there is no such file".
void refuse_if_hidden(const std::filesystem::path& path);

// UserError(checkpoint) where this is no folder, or one that this user may not write to; nothing where it is still to be made.
void expect_writable_folder(const std::filesystem::path& folder);

// For what the standard library throws about a path that a person gave: it is no bug of ours.
UserError refusal(const std::filesystem::filesystem_error& error);

}  // namespace lockstep::base
