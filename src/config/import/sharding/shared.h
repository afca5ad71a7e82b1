// What FSDP's and DeepSpeed's keys share. Used inside this folder.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "config/import/table.h"

namespace lockstep::config {

inline constexpr std::string_view say_by_hand = "say it by parallel.shard: optimizer (stage 1), gradients (stage 2) or full (stage 3)";

// A file that the one at hand names. Refuses what is no map, and returns nothing then.
std::optional<YAML::Node> import_other_file(Importer& to, const std::filesystem::path& path);

// For keys that a section may hold and the table does not know: harmless, unless one of those that decide was meant.
void import_ignore_unless_near(Importer& to, std::initializer_list<std::string_view> deciding);

}  // namespace lockstep::config
