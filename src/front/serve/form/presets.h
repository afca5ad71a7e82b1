// Settings kept under a name, for the next run: OUTPUT/.ui/presets/NAME.json, and the run files that come with the program.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "front/serve/folders.h"
#include "front/serve/form/form.h"

namespace lockstep::serve {

// [{"name", "own", "settings"}], a person's own first. Files that cannot be read are left out.
nlohmann::ordered_json list_presets(const Folders& folders);
void save_preset(const Folders& folders, const std::string& name, const Values& values);  // UserError where the name is none
void delete_preset(const Folders& folders, const std::string& name);

}  // namespace lockstep::serve
