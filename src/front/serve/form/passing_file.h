// A file that is gone at the end: for what reads files and is given text.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/clock.h"
#include "base/files.h"

namespace lockstep::serve {

class PassingFile {
 public:
  PassingFile(const std::filesystem::path& folder, const std::string& text)
      : path_(folder / fmt::format("passing-{}-{:x}.yaml", ::getpid(), base::now_ns())) {
    base::real_files().create_directories(folder);
    base::write_text_atomically(base::real_files(), path_, text);
  }
  ~PassingFile() {
    std::error_code error;
    std::filesystem::remove(path_, error);
  }
  PassingFile(const PassingFile&) = delete;
  PassingFile& operator=(const PassingFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep::serve
