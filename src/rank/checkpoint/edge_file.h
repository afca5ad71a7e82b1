// What a writer has of pages that it does not fill, in a file of its own beside its part, until writer 0 has all that belongs to them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include "base/files.h"

namespace lockstep::checkpoint {

class EdgeFile {
 public:
  EdgeFile(base::FileSystem& files, std::filesystem::path path) : files_(files), path_(std::move(path)) {}

  // Returns how far into the file they lie. The first ones make it.
  std::uint64_t add(std::span<const std::byte> bytes) {
    if (!writer_) writer_ = files_.create(path_);
    writer_->write(bytes);
    return std::exchange(end_, end_ + bytes.size());
  }
  void sync_and_close() {
    if (writer_) writer_->sync_and_close();
  }

 private:
  base::FileSystem& files_;
  std::filesystem::path path_;
  std::unique_ptr<base::FileWriter> writer_;
  std::uint64_t end_ = 0;
};

}  // namespace lockstep::checkpoint
