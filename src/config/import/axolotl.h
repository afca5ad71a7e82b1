// What the two halves of Axolotl's table share. Used inside this folder.
#pragma once

#include "config/import/table.h"

namespace lockstep::config {

void axolotl_datasets(Importer& to, const YAML::Node& value);
void axolotl_pretraining(Importer& to, const YAML::Node& value);
void axolotl_chat_template(Importer& to, const YAML::Node& value);
void axolotl_chat_template_jinja(Importer& to, const YAML::Node& value);
void axolotl_special_tokens(Importer& to, const YAML::Node& value);

}  // namespace lockstep::config
