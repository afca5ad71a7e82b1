// Makes memory without a name, finds the others' through /proc, and wakes who sleeps by a futex.
#include "rank/comm/shared_memory.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <linux/futex.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/error.h"
#include "base/hash/fresh.h"
#include "base/text.h"

namespace lockstep::comm {
namespace {

constexpr std::size_t page = 4096;
// Of one rank, for all others. Larger rings save wake-ups, smaller ones stay in the second cache.
constexpr std::size_t most_bytes = 1u << 20, least_ring_bytes = 16u << 10;

std::string last_error() { return std::strerror(errno); }

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

std::string text_at(c10d::Store& store, const std::string& key) {
  const std::vector<std::uint8_t> bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}
void set_text(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
}

}  // namespace

std::size_t Ring::put(std::span<const std::byte> bytes) {
  const std::uint64_t written = ends_->written.load(std::memory_order_relaxed);
  const std::size_t count = std::min(bytes.size(), room()), at = written % bytes_.size(), until_end = std::min(count, bytes_.size() - at);
  if (count == 0) return 0;
  std::memcpy(bytes_.data() + at, bytes.data(), until_end);
  std::memcpy(bytes_.data(), bytes.data() + until_end, count - until_end);
  ends_->written.store(written + count, std::memory_order_release);
  return count;
}

std::size_t Ring::take(std::span<std::byte> bytes) {
  const std::uint64_t read = ends_->read.load(std::memory_order_relaxed);
  const std::size_t count = std::min(bytes.size(), waiting()), at = read % bytes_.size(), until_end = std::min(count, bytes_.size() - at);
  if (count == 0) return 0;
  std::memcpy(bytes.data(), bytes_.data() + at, until_end);
  std::memcpy(bytes.data() + until_end, bytes_.data(), count - until_end);
  ends_->read.store(read + count, std::memory_order_release);
  return count;
}

// What a rank's memory begins with; its rings' ends follow, one per rank, then their bytes from the next page on.
struct SharedMemory::Segment {
  std::atomic<std::uint32_t> bell, asleep;
  Ring::Ends ends[];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

SharedMemory::SharedMemory(Seat seat)
    : seat_(seat),
      ring_bytes_(std::max(least_ring_bytes, std::bit_floor(most_bytes / static_cast<std::size_t>(seat.size - 1)))),
      files_(static_cast<std::size_t>(seat.size)),
      memory_(static_cast<std::size_t>(seat.size), nullptr),
      to_(static_cast<std::size_t>(seat.size)),
      from_(static_cast<std::size_t>(seat.size)) {
  const auto ranks = static_cast<std::size_t>(seat.size);
  const std::size_t head = (sizeof(Segment) + ranks * sizeof(Ring::Ends) + page - 1) / page * page;
  segment_bytes_ = head + ranks * ring_bytes_;  // its own ring is never touched, and so never there
}

SharedMemory::~SharedMemory() {
  for (std::byte* memory : memory_)
    if (memory != nullptr) ::munmap(memory, segment_bytes_);
}

SharedMemory::Segment& SharedMemory::segment(int rank) const {
  return *reinterpret_cast<Segment*>(memory_[static_cast<std::size_t>(rank)]);
}
std::span<std::byte> SharedMemory::ring_bytes(int owner, int reader) const {
  const std::size_t head = segment_bytes_ - static_cast<std::size_t>(seat_.size) * ring_bytes_;
  return {memory_[static_cast<std::size_t>(owner)] + head + static_cast<std::size_t>(reader) * ring_bytes_, ring_bytes_};
}

std::string SharedMemory::create() {
  const auto mine = static_cast<std::size_t>(seat_.rank);
  name_ = "lockstep-" + base::fresh_id(4);
  files_[mine] = base::Descriptor(::memfd_create(name_.c_str(), MFD_CLOEXEC));
  const int file = files_[mine].number();
  // Locked for as long as this process lives: that is how others know.
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(segment_bytes_)) != 0 || ::flock(file, LOCK_EX | LOCK_NB) != 0)
    return fmt::format("memory cannot be made: {}", last_error());
  void* memory = ::mmap(nullptr, segment_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return fmt::format("memory cannot be mapped: {}", last_error());
  memory_[mine] = static_cast<std::byte*>(memory);
  return {};
}

std::string SharedMemory::where() const {
  return fmt::format("{} {} {}", ::getpid(), files_[static_cast<std::size_t>(seat_.rank)].number(), name_);
}

std::string SharedMemory::open(int rank, const std::string& where) {
  if (where.starts_with('!')) return where.substr(1);
  const std::vector<std::string> words = base::split(where, ' ');
  base::check(words.size() == 3, "a rank's memory is told by process, descriptor and name");
  const std::string path = fmt::format("/proc/{}/fd/{}", words[0], words[1]);
  // On another machine or in another container this is another process, or none: its name tells before anything is opened.
  char target[PATH_MAX];
  const ssize_t size = ::readlink(path.c_str(), target, sizeof target);
  if (size < 0) return fmt::format("{}: {}", path, last_error());
  if (!std::string_view(target, static_cast<std::size_t>(size)).starts_with("/memfd:" + words[2])) return path + " is something else";
  const auto slot = static_cast<std::size_t>(rank);
  files_[slot] = base::Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!files_[slot].open()) return fmt::format("{}: {}", path, last_error());
  struct stat about {};
  if (::fstat(files_[slot].number(), &about) != 0 || about.st_size != static_cast<off_t>(segment_bytes_)) return path + " has another size";
  void* memory = ::mmap(nullptr, segment_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, files_[slot].number(), 0);
  if (memory == MAP_FAILED) return fmt::format("{} cannot be mapped: {}", path, last_error());
  memory_[slot] = static_cast<std::byte*>(memory);
  return {};
}

std::unique_ptr<SharedMemory> SharedMemory::make(c10d::Store& store, Seat seat, std::string& reason) {
  std::unique_ptr<SharedMemory> memory(new SharedMemory(seat));
  const auto key = [](std::string_view what, int rank) { return fmt::format("memory/{}/{}", what, rank); };
  std::string failure = memory->create();
  set_text(store, key("where", seat.rank), failure.empty() ? memory->where() : "!" + failure);
  for (int rank = 0; rank < seat.size && failure.empty(); ++rank)
    if (rank != seat.rank) failure = memory->open(rank, text_at(store, key("where", rank)));
  set_text(store, key("seen", seat.rank), "!" + failure);
  reason.clear();
  for (int rank = 0; rank < seat.size && reason.empty(); ++rank) reason = text_at(store, key("seen", rank)).substr(1);
  if (!reason.empty()) return nullptr;
  memory->connect();
  return memory;
}

void SharedMemory::connect() {
  for (int rank = 0; rank < seat_.size; ++rank) {
    if (rank == seat_.rank) continue;
    const auto slot = static_cast<std::size_t>(rank), mine = static_cast<std::size_t>(seat_.rank);
    to_[slot] = Ring(&segment(seat_.rank).ends[slot], ring_bytes(seat_.rank, rank));
    from_[slot] = Ring(&segment(rank).ends[mine], ring_bytes(rank, seat_.rank));
  }
}

// Who waits says so first and then looks at the bell once more, in the kernel: no ring between the two is lost.
void SharedMemory::ring(int rank) {
  Segment& other = segment(rank);
  other.bell.fetch_add(1);
  if (other.asleep.load() != 0) futex(other.bell, FUTEX_WAKE, 1, nullptr);
}

std::uint32_t SharedMemory::rings() const { return segment(seat_.rank).bell.load(); }

bool SharedMemory::wait(std::uint32_t since, double seconds) {
  Segment& mine = segment(seat_.rank);
  const timespec timeout{.tv_sec = static_cast<time_t>(seconds),
                         .tv_nsec = static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
  mine.asleep.store(1);
  futex(mine.bell, FUTEX_WAIT, since, &timeout);
  mine.asleep.store(0);
  return mine.bell.load() != since;
}

bool SharedMemory::alive(int rank) const {
  const int file = files_[static_cast<std::size_t>(rank)].number();
  if (::flock(file, LOCK_SH | LOCK_NB) != 0) return true;
  ::flock(file, LOCK_UN);
  return false;
}

}  // namespace lockstep::comm
