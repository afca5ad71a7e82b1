// Populating and dropping pages with madvise.
#include "rank/checkpoint/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t chunk_bytes = 8u << 20;
#ifdef MADV_POPULATE_READ
constexpr int populate_read = MADV_POPULATE_READ;
#else
constexpr int populate_read = 22;  // Linux 5.14; older headers do not name it
#endif

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

// How far into its page an address lies.
std::size_t offset_in_page(const std::byte* address) { return reinterpret_cast<std::uintptr_t>(address) % page_size(); }

// The kernel takes addresses of memory that it does not change as if it did.
int advise(const std::byte* first, std::size_t size, int advice) { return ::madvise(const_cast<std::byte*>(first), size, advice); }

// False only where the kernel says that the pages cannot be had: touching them would kill the process.
bool populate(std::span<const std::byte> bytes) {
  const std::size_t before = offset_in_page(bytes.data()), size = before + bytes.size();
  const std::byte* first = bytes.data() - before;
  while (advise(first, size, populate_read) != 0) {
    if (errno == EAGAIN || errno == EINTR) continue;
    if (errno == EFAULT || errno == EHWPOISON) return false;
    // An older kernel, or one short of memory: ask for them and let whoever reads them wait.
    advise(first, size, MADV_WILLNEED);
    return true;
  }
  return true;
}

}  // namespace

void drop_pages(std::span<const std::byte> bytes) {
  const std::size_t before = offset_in_page(bytes.data()), skipped = before == 0 ? 0 : page_size() - before;  // of the first page
  const std::size_t behind = offset_in_page(bytes.data() + bytes.size());                                     // of the last
  if (bytes.size() > skipped + behind) advise(bytes.data() + skipped, bytes.size() - skipped - behind, MADV_DONTNEED);
}

ReadAhead::ReadAhead(std::vector<std::span<const std::byte>> ranges, std::size_t ahead_bytes, int threads)
    : ranges_(std::move(ranges)), ahead_bytes_(ahead_bytes), unread_(ranges_.size()), failed_(ranges_.size()) {
  for (std::size_t range = 0; range < ranges_.size(); ++range) {
    for (std::size_t at = 0; at < ranges_[range].size(); at += chunk_bytes) {
      chunks_.push_back({ranges_[range].subspan(at, std::min(chunk_bytes, ranges_[range].size() - at)), range});
      ++unread_[range];
    }
  }
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

ReadAhead::~ReadAhead() {
  {
    const base::Lock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
}

void ReadAhead::work() {
  base::Lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&]() LOCKSTEP_REQUIRES(mutex_) {
      return closing_ || next_ == chunks_.size() || held_ < ahead_bytes_ || chunks_[next_].range <= current_;
    });
    if (closing_ || next_ == chunks_.size()) return;
    const Chunk chunk = chunks_[next_++];
    held_ += chunk.bytes.size();
    lock.unlock();
    const bool read = populate(chunk.bytes);
    lock.lock();
    if (!read) failed_[chunk.range] = true;
    if (--unread_[chunk.range] == 0) changed_.notify_all();
  }
}

bool ReadAhead::wait(std::size_t range) {
  base::Lock lock(mutex_);
  current_ = range;
  changed_.notify_all();
  changed_.wait(lock, [&]() LOCKSTEP_REQUIRES(mutex_) { return unread_[range] == 0; });
  return !failed_[range];
}

void ReadAhead::done(std::size_t range) {
  drop_pages(ranges_[range]);
  {
    const base::Lock lock(mutex_);
    held_ -= ranges_[range].size();
  }
  changed_.notify_all();
}

}  // namespace lockstep::checkpoint
