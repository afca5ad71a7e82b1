// A file of lines that never gets long: where there are too many, older ones are thinned out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "base/file/patient_writer.h"
#include "base/files.h"

namespace lockstep::journal {

// Lines that begin with {"event": stay. Of the others the last ones stay as they are, and of those before them every second one goes each
// time the file is full: it covers all of a run, ever more coarsely towards its beginning. A disk that refuses lines ends nothing.
// One thread.
class ThinnedLines {
 public:
  struct Options {
    std::size_t most = 7200;            // lines
    std::size_t untouched = 600;        // the last ones
    base::FileSystem* files = nullptr;  // null: the real ones
  };
  // Goes on with a file that is there.
  ThinnedLines(std::filesystem::path path, Options options);
  explicit ThinnedLines(std::filesystem::path path) : ThinnedLines(std::move(path), Options{}) {}
  void write(std::string_view line);  // without a line end

 private:
  void open();
  void thin();

  std::filesystem::path path_;
  Options options_;
  base::FileSystem& files_;
  std::unique_ptr<base::PatientWriter> lines_;
  std::size_t count_ = 0;
};

}  // namespace lockstep::journal
