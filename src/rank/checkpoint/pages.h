// Pages of mapped files: read ahead by several threads, given back behind the reader.
#pragma once

#include <cstddef>
#include <span>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace lockstep::checkpoint {

// Takes the whole pages of these bytes out of this process's memory; the system may keep them cached for others.
void drop_pages(std::span<const std::byte> bytes);

// Reads ranges of mapped files into memory, in order, a bounded number of bytes ahead of the one who uses them.
class ReadAhead {
 public:
  ReadAhead(std::vector<std::span<const std::byte>> ranges, std::size_t ahead_bytes, int threads);
  ~ReadAhead();
  // Blocks until range i is in memory; false where it could not be read (the disk failed, the file shrank).
  bool wait(std::size_t range);
  // Range i is done with: its pages are given back, and reading may go on.
  void done(std::size_t range);

 private:
  struct Chunk {
    std::span<const std::byte> bytes;
    std::size_t range;
  };
  void work();

  const std::vector<std::span<const std::byte>> ranges_;
  const std::size_t ahead_bytes_;
  std::vector<Chunk> chunks_;
  base::Mutex mutex_;
  base::Condition changed_;
  std::size_t next_ LOCKSTEP_GUARDED_BY(mutex_) = 0;             // chunk that is read next
  std::size_t current_ LOCKSTEP_GUARDED_BY(mutex_) = 0;          // range that is waited for: it may be larger than the bytes ahead
  std::size_t held_ LOCKSTEP_GUARDED_BY(mutex_) = 0;             // bytes of chunks begun whose range is not done
  std::vector<std::size_t> unread_ LOCKSTEP_GUARDED_BY(mutex_);  // chunks of each range that are not in memory yet
  std::vector<bool> failed_ LOCKSTEP_GUARDED_BY(mutex_);
  bool closing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;
};

}  // namespace lockstep::checkpoint
