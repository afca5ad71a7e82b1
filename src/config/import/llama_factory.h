// What the two halves of LLaMA-Factory's table share. Used inside this folder.
#pragma once

#include "config/import/table.h"

namespace lockstep::config {

void llama_factory_dataset(Importer& to, const YAML::Node& value);
std::vector<std::string> llama_factory_dataset_names(const YAML::Node& value);

}  // namespace lockstep::config
