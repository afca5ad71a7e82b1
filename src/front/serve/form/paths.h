// What a person who types a path may mean: folders and files that go on from there.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "front/serve/folders.h"

namespace lockstep::serve {

// [{"path", "folder": true, "model": true}, ...]: at most 100, folders first, none that is hidden or lies outside the allowed folders.
// Where nothing is typed, the allowed folders themselves.
nlohmann::ordered_json paths_from(const Folders& folders, const std::string& typed);

}  // namespace lockstep::serve
