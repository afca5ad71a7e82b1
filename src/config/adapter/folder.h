// A PEFT adapter folder as settings: its adapter_config.json read without trusting it, and written so that PEFT loads it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"

namespace lockstep::config {

// What DIR/adapter_config.json says; enabled is set, `adapters` left alone. UserError(ExitCode::usage) that names the file and the key.
LoraConfig read_adapter_folder(const std::filesystem::path& folder);

// The model folder that DIR/adapter_config.json names; UserError where it names none.
std::string adapter_base(const std::filesystem::path& folder);

// What DIR/adapter_config.json names as its base, a folder or a name elsewhere; may be empty.
std::string adapter_base_name(const std::filesystem::path& folder);

// adapter_config.json for these settings. base: what the adapter belongs to, a folder or a name.
std::string adapter_config_text(const LoraConfig& lora, const std::string& base);

// Where lora.adapters names folders, the last one gives the adapter's shape. Returns what a person set otherwise, one sentence each.
std::vector<std::string> follow_adapter_folder(Settings& settings);

}  // namespace lockstep::config
