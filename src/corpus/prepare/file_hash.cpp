// Remembers by what the file system says of a file, as version control does.
#include "corpus/prepare/file_hash.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>

#include "base/error.h"
#include "base/files.h"
#include "base/hash/content_hash.h"

namespace lockstep::corpus {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t settled_seconds = 3;           // a younger file may change again within its time stamp
constexpr std::size_t worth_remembering = 16u << 20;  // bytes; less is read in no time

}  // namespace

std::string hash_file(const fs::path& path, std::string_view content, const fs::path& folder) {
  struct stat status {};
  const bool known = content.size() >= worth_remembering && ::stat(path.c_str(), &status) == 0;
  if (!known) return base::ContentHash().add(content).hex();
  const std::string full = fs::absolute(path).lexically_normal().string();
  const fs::path memory = folder / "files" / base::ContentHash().add(full).hex();
  const std::string state = fmt::format("{} {} {}.{} {}.{}", status.st_size, status.st_ino, status.st_mtim.tv_sec, status.st_mtim.tv_nsec,
                                        status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
  std::error_code error;
  if (fs::is_regular_file(memory, error)) {
    const std::string text = base::read_text(memory);
    if (text.starts_with(state + "\n") && text.size() == state.size() + 33) return text.substr(state.size() + 1);
  }
  std::string hash = base::ContentHash().add(content).hex();
  const bool settled = std::time(nullptr) - std::max(status.st_mtim.tv_sec, status.st_ctim.tv_sec) >= settled_seconds;
  if (settled) {
    try {  // not being able to remember costs time, nothing else
      base::real_files().create_directories(memory.parent_path());
      const fs::path beside = fmt::format("{}.{}", memory.string(), ::getpid());
      base::write_text_atomically(base::real_files(), beside, state + "\n" + hash);
      base::real_files().rename(beside, memory);
    } catch (const base::UserError&) {
    }
  }
  return hash;
}

}  // namespace lockstep::corpus
