// Follows a file of lines while another process appends to it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file/descriptor.h"

namespace lockstep::journal {

// One thread at a time. Only whole lines come out; a line still being written waits for its end.
class Tail {
 public:
  explicit Tail(std::filesystem::path path);
  Tail(const Tail&) = delete;
  Tail& operator=(const Tail&) = delete;

  struct Update {
    bool replaced = false;  // another file stands at the path now (or it was cut): `lines` begins at its first line
    std::vector<std::string> lines;
  };
  // What came since the last call. No file: nothing.
  Update poll();
  // Passes over what is there now.
  void skip_to_end();

 private:
  bool reopen_if_replaced();
  std::filesystem::path path_;
  base::Descriptor file_;
  std::uint64_t device_ = 0;
  std::uint64_t inode_ = 0;
  std::int64_t offset_ = 0;
  std::string rest_;  // begun line
};

// The last `count` lines of a file, without reading the whole of it; empty if there is none.
std::vector<std::string> last_lines(const std::filesystem::path& path, int count);

}  // namespace lockstep::journal
