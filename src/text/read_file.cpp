// Reading through base, refusing in the words of this room.
#include "text/read_file.h"

#include "base/error.h"
#include "base/files.h"

namespace lockstep::text {

std::string read_file(const std::filesystem::path& path) {
  try {
    return base::read_text(path);
  } catch (const base::UserError& failure) {
    throw base::data_error("text", "{} could not be read: {}", path.string(), failure.what());
  }
}

}  // namespace lockstep::text
