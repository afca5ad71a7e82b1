// Tells whose file this is by its keys. Used inside this folder.
#pragma once

#include "config/import/table.h"

namespace lockstep::config {

// The file as YAML; UserError where it cannot be read.
YAML::Node parse_foreign(const std::filesystem::path& path);

// UserError where no program or more than one could have written it, or where it is of a program for other models.
const ImportProgram& told_by_keys(const YAML::Node& file, const std::string& name);
const ImportProgram& named_program(std::string_view word);

}  // namespace lockstep::config
