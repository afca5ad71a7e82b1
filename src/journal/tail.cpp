// Reads from where it stopped, and notices by device and inode when another file has taken the place.
#include "journal/tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace lockstep::journal {

Tail::Tail(std::filesystem::path path) : path_(std::move(path)) {}

// The open file is kept until another stands at the path, so its inode number cannot be given to that other one.
bool Tail::reopen_if_replaced() {
  struct stat now {};
  if (::stat(path_.c_str(), &now) != 0) return false;
  const bool same = file_.open() && now.st_dev == device_ && now.st_ino == inode_;
  if (same && now.st_size >= offset_) return false;
  base::Descriptor opened(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.open()) return false;
  const bool replaced = file_.open();
  file_ = std::move(opened);
  ::fstat(file_.number(), &now);
  device_ = now.st_dev;
  inode_ = now.st_ino;
  offset_ = 0;
  rest_.clear();
  return replaced;
}

Tail::Update Tail::poll() {
  Update update;
  update.replaced = reopen_if_replaced();
  if (!file_.open()) return update;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::pread(file_.number(), buffer, sizeof buffer, offset_);
    if (got <= 0) break;
    offset_ += got;
    std::string_view piece(buffer, static_cast<std::size_t>(got));
    for (std::size_t end; (end = piece.find('\n')) != std::string_view::npos; piece.remove_prefix(end + 1)) {
      update.lines.push_back(std::move(rest_) + std::string(piece.substr(0, end)));
      rest_.clear();
    }
    rest_ += piece;
  }
  return update;
}

void Tail::skip_to_end() {
  poll();
  rest_.clear();
}

std::vector<std::string> last_lines(const std::filesystem::path& path, int count) {
  std::vector<std::string> lines;
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) return lines;
  constexpr std::int64_t window = 1 << 16;
  struct stat status {};
  std::string text;
  if (::fstat(file.number(), &status) == 0) {
    const std::int64_t start = std::max<std::int64_t>(0, status.st_size - window);
    text.resize(static_cast<std::size_t>(status.st_size - start));
    const ssize_t got = ::pread(file.number(), text.data(), text.size(), start);
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  while (!text.empty() && static_cast<int>(lines.size()) < count) {
    const std::size_t begin = text.rfind('\n');
    lines.push_back(begin == std::string::npos ? text : text.substr(begin + 1));
    text.resize(begin == std::string::npos ? 0 : begin);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace lockstep::journal
