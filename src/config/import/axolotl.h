// What the parts of Axolotl's table share. Used inside this folder.
#pragma once

#include "config/import/table.h"

namespace lockstep::config {

void axolotl_datasets(Importer& to, const YAML::Node& value);
void axolotl_pretraining(Importer& to, const YAML::Node& value);
void axolotl_chat_template(Importer& to, const YAML::Node& value);
void axolotl_chat_template_jinja(Importer& to, const YAML::Node& value);
void axolotl_special_tokens(Importer& to, const YAML::Node& value);

void axolotl_adapter(Importer& to, const YAML::Node& value);
void axolotl_four_bits(Importer& to, const YAML::Node& value);
void axolotl_eight_bits(Importer& to, const YAML::Node& value);
void axolotl_bnb_config(Importer& to, const YAML::Node& value);
void axolotl_target_linear(Importer& to, const YAML::Node& value);
void axolotl_target_modules(Importer& to, const YAML::Node& value);
void axolotl_bf16(Importer& to, const YAML::Node& value);
void axolotl_batch_size(Importer& to, const YAML::Node& value);
void axolotl_shuffle(Importer& to, const YAML::Node& value);
void axolotl_too_long(Importer& to, const YAML::Node& value);
void axolotl_plugins(Importer& to, const YAML::Node& value);
void axolotl_activation_offloading(Importer& to, const YAML::Node& value);

}  // namespace lockstep::config
