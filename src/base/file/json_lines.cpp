// Line by line, so that a mistake has a number.
#include "base/file/json_lines.h"

#include <cerrno>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/file/refusal.h"
#include "base/json.h"
#include "base/text.h"

namespace lockstep::base {

std::vector<JsonLine> read_json_lines(const std::filesystem::path& path, std::string_view room) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw data_error(room, "cannot read {}: {}.", path.string(), why_refused(path, errno, Access::read));
  if (std::error_code error; std::filesystem::is_directory(path, error))
    throw data_error(room, "cannot read {}: {}.", path.string(), why_refused(path, EISDIR, Access::read));
  std::vector<JsonLine> lines;
  std::string text;
  for (std::int64_t number = 1; std::getline(file, text); ++number) {
    if (trim(text).empty()) continue;
    try {
      lines.push_back({number, parse_json(text)});
    } catch (const JsonError& error) {
      throw data_error(room, "{}, line {}: this is not JSON: column {}: {}.", path.string(), number, error.byte() + 1, error.reason());
    }
  }
  return lines;
}

}  // namespace lockstep::base
