// Where this user's caches are.
#pragma once

#include <filesystem>

namespace lockstep::base {

// $LOCKSTEP_CACHE, $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep; empty where none of these is set.
std::filesystem::path cache_folder();

}  // namespace lockstep::base
