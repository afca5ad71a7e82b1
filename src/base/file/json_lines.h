// A file of JSON, one value per line; blank lines are none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace lockstep::base {

struct JsonLine {
  std::int64_t number = 0;  // counted from 1
  nlohmann::ordered_json value;
};

// UserError(ExitCode::data) of `room` that names the file where it cannot be read, with the line where that is no JSON.
std::vector<JsonLine> read_json_lines(const std::filesystem::path& path, std::string_view room);

}  // namespace lockstep::base
