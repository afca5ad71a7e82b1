// A text with a path, for what reads files: it lies in memory, so a full disk takes nothing away.
#pragma once

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/file/descriptor.h"

namespace lockstep::serve {

// Programs that this one starts can read it too, while it lives.
class PassingFile {
 public:
  explicit PassingFile(std::string_view text) : file_(::memfd_create("settings", MFD_CLOEXEC)) {
    if (!file_.open()) throw base::machine_error("ui", "cannot make a file in memory: {}.", std::strerror(errno));
    while (!text.empty()) {
      const ssize_t written = ::write(file_.number(), text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw base::machine_error("ui", "cannot write to a file in memory: {}.", std::strerror(errno));
      text.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  std::string path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), file_.number()); }

 private:
  base::Descriptor file_;
};

}  // namespace lockstep::serve
