// The page as two copies of one body, each under its own version number: at any moment, also the one in which the writer is killed,
// at least one copy is whole.
#include "journal/page.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"

namespace lockstep::journal {
namespace {

constexpr std::uint64_t page_magic = 0x32'65'67'61'70'6b'63'6cull;  // "lckpage2"
constexpr std::size_t failure_bytes = 4096;
constexpr std::size_t notice_bytes = 1024;

template <std::size_t n>
void copy_text(char (&to)[n], std::string_view from) {
  const std::size_t length = std::min(from.size(), n - 1);
  std::memcpy(to, from.data(), length);
  std::memset(to + length, 0, n - length);
}

}  // namespace

struct PageWriter::Body {
  std::uint32_t rank;
  std::uint32_t pid;
  Phase phase;
  std::int32_t failure_code;
  std::uint64_t pid_namespace;
  std::int64_t created_ns;
  std::uint64_t locked;  // the writer holds a lock on the file for as long as it lives
  std::int64_t step;
  std::int64_t phase_since_ns;
  std::int64_t progress_ns;
  std::int64_t failure_ns;
  std::int64_t notice_ns;
  std::uint64_t stamped;  // operations so far; operation k lies in slot k % operations_kept
  std::array<Operation, operations_kept> operations;
  char failure[failure_bytes];
  char notice[notice_bytes];
};

// What lies in the file. Words are atomics, so a reader that looks while they change reads old or new words, never undefined ones.
struct PageWriter::Shared {
  static constexpr std::size_t words = sizeof(Body) / 8;
  struct Copy {
    std::atomic<std::uint64_t> version;  // odd while it is being written
    std::array<std::atomic<std::uint64_t>, words> body;
  };
  std::atomic<std::uint64_t> magic;
  std::array<Copy, 2> copies;
};

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::starting: return "starting";
    case Phase::connecting: return "connecting";
    case Phase::building: return "building";
    case Phase::loading: return "loading";
    case Phase::reading_data: return "reading_data";
    case Phase::forward: return "forward";
    case Phase::backward: return "backward";
    case Phase::reducing: return "reducing";
    case Phase::updating: return "updating";
    case Phase::evaluating: return "evaluating";
    case Phase::saving: return "saving";
    case Phase::sampling: return "sampling";
    case Phase::finishing: return "finishing";
    case Phase::done: return "done";
  }
  return "unknown";
}

std::string_view describe(Phase phase) {
  switch (phase) {
    case Phase::starting: return "starting";
    case Phase::connecting: return "connecting to the other ranks";
    case Phase::building: return "building the model";
    case Phase::loading: return "loading weights";
    case Phase::reading_data: return "reading data";
    case Phase::forward: return "computing the forward pass";
    case Phase::backward: return "computing the backward pass";
    case Phase::reducing: return "waiting for gradients";
    case Phase::updating: return "updating weights";
    case Phase::evaluating: return "evaluating";
    case Phase::saving: return "saving a checkpoint";
    case Phase::sampling: return "writing a sample";
    case Phase::finishing: return "finishing";
    case Phase::done: return "done";
  }
  return "in an unknown phase";
}

bool may_take_long(Phase phase) {
  switch (phase) {
    case Phase::reading_data:
    case Phase::forward:
    case Phase::backward:
    case Phase::reducing:
    case Phase::updating: return false;
    default: return true;
  }
}

PageWriter::PageWriter(const std::filesystem::path& path, int rank) : body_(std::make_unique<Body>()) {
  static_assert(std::is_trivially_copyable_v<Body> && sizeof(Body) % 8 == 0 && sizeof(Operation) % 8 == 0);
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  body_->rank = static_cast<std::uint32_t>(rank);
  body_->pid = static_cast<std::uint32_t>(::getpid());
  body_->pid_namespace = base::pid_namespace();
  body_->created_ns = body_->phase_since_ns = body_->progress_ns = base::now_ns();
  if (path.empty()) return;

  // Made beside and renamed, so a reader finds the whole page or none.
  const std::string beside = path.string() + ".new";
  ::unlink(beside.c_str());  // what a start that was killed here left is not to be written to
  file_ = ::open(beside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file_ < 0) throw base::machine_error("journal", "cannot create the rank's page {}: {}.", beside, std::strerror(errno));
  body_->locked = ::flock(file_, LOCK_EX | LOCK_NB) == 0 ? 1 : 0;
  void* mapped = MAP_FAILED;
  if (::posix_fallocate(file_, 0, sizeof(Shared)) == 0)
    mapped = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapped == MAP_FAILED) {
    ::close(file_);
    throw base::machine_error("journal", "cannot make the rank's page {} ({} bytes). Is {} full?", beside, sizeof(Shared),
                              path.parent_path().string());
  }
  shared_ = new (mapped) Shared;
  publish(body_.get(), sizeof(Body));
  shared_->magic.store(page_magic, std::memory_order_release);
  if (::rename(beside.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::munmap(mapped, sizeof(Shared));
    ::close(file_);
    throw base::machine_error("journal", "cannot create the rank's page {}: {}.", path.string(), std::strerror(error));
  }
}

PageWriter::~PageWriter() {
  if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
  if (file_ >= 0) ::close(file_);
}

// Copies the changed part of body_ and the fixed part at its head into both copies. Called with mutex_ held.
void PageWriter::publish(const void* begin, std::size_t bytes) {
  if (shared_ == nullptr) return;
  constexpr std::size_t head_words = offsetof(Body, operations) / 8;
  const auto* base_byte = reinterpret_cast<const std::byte*>(body_.get());
  const std::size_t first = static_cast<std::size_t>(static_cast<const std::byte*>(begin) - base_byte) / 8;
  const std::size_t last = (static_cast<std::size_t>(static_cast<const std::byte*>(begin) - base_byte) + bytes + 7) / 8;
  for (auto& copy : shared_->copies) {
    const std::uint64_t version = copy.version.load(std::memory_order_relaxed);
    copy.version.store(version + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    const auto store = [&](std::size_t from, std::size_t to) {
      for (std::size_t i = from; i < to; ++i) {
        std::uint64_t word;
        std::memcpy(&word, base_byte + i * 8, 8);
        copy.body[i].store(word, std::memory_order_relaxed);
      }
    };
    store(0, head_words);
    store(std::max(first, head_words), std::max(last, head_words));
    copy.version.store(version + 2, std::memory_order_release);
  }
}

void PageWriter::set_phase(Phase phase, std::int64_t step) {
  const base::Lock lock(mutex_);
  body_->progress_ns = base::now_ns();
  if (phase != body_->phase || step != body_->step) body_->phase_since_ns = body_->progress_ns;
  body_->phase = phase;
  body_->step = step;
  publish(body_.get(), 0);
}

void PageWriter::note_progress() {
  const base::Lock lock(mutex_);
  body_->progress_ns = base::now_ns();
  publish(body_.get(), 0);
}

int PageWriter::stamp(std::string_view group, std::string_view kind, std::string_view what, std::uint64_t sequence, std::uint64_t bytes) {
  const base::Lock lock(mutex_);
  const std::uint64_t number = body_->stamped++;
  Operation& operation = body_->operations[number % operations_kept];
  copy_text(operation.group, group);
  copy_text(operation.kind, kind);
  copy_text(operation.what, what);
  operation.sequence = sequence;
  operation.bytes = bytes;
  operation.issued_ns = body_->progress_ns = base::now_ns();
  operation.state = OperationState::issued;
  publish(&operation, sizeof operation);
  return static_cast<int>(number & 0x7fff'ffff);
}

void PageWriter::mark(int slot, std::uint64_t sequence, OperationState state) {
  const base::Lock lock(mutex_);
  const std::uint64_t age = (body_->stamped - static_cast<std::uint64_t>(slot)) & 0x7fff'ffff;
  Operation& operation = body_->operations[static_cast<std::size_t>(slot) % operations_kept];
  if (age > operations_kept || operation.sequence != sequence) return;
  operation.state = state;
  body_->progress_ns = base::now_ns();
  publish(&operation, sizeof operation);
}

void PageWriter::set_failure(std::string_view text, int exit_code) {
  const base::Lock lock(mutex_);
  if (body_->failure_ns != 0) return;
  copy_text(body_->failure, text);
  body_->failure_code = exit_code;
  body_->failure_ns = body_->progress_ns = base::now_ns();
  publish(body_->failure, sizeof body_->failure);
}

void PageWriter::set_notice(std::string_view text) {
  const base::Lock lock(mutex_);
  copy_text(body_->notice, text);
  body_->notice_ns = body_->progress_ns = base::now_ns();
  publish(body_->notice, sizeof body_->notice);
}

PageReader::PageReader(std::filesystem::path path) : path_(std::move(path)) {}

PageReader::~PageReader() { close(); }

void PageReader::close() {
  if (page_ != nullptr) ::munmap(const_cast<PageWriter::Shared*>(std::exchange(page_, nullptr)), sizeof(PageWriter::Shared));
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

bool PageReader::open() {
  struct stat there {};
  const bool exists = ::lstat(path_.c_str(), &there) == 0;
  if (page_ != nullptr && (!exists || (there.st_ino == inode_ && there.st_dev == device_))) return true;
  if (!exists) return false;
  close();
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file_ < 0) return false;
  struct stat status {};
  void* mapped = MAP_FAILED;
  // A page of another version has another size or magic number, and reads as not there.
  if (::fstat(file_, &status) == 0 && static_cast<std::size_t>(status.st_size) == sizeof(PageWriter::Shared)) {
    mapped = ::mmap(nullptr, sizeof(PageWriter::Shared), PROT_READ, MAP_SHARED, file_, 0);
  }
  if (mapped == MAP_FAILED) {
    close();
    return false;
  }
  page_ = static_cast<const PageWriter::Shared*>(mapped);
  inode_ = status.st_ino;
  device_ = status.st_dev;
  return true;
}

// The kernel gives the lock up when the process ends, also where nobody has collected it yet.
bool PageReader::writer_lives() const {
  if (::flock(file_, LOCK_SH | LOCK_NB) != 0) return true;
  ::flock(file_, LOCK_UN);
  return false;
}

std::optional<PageView> PageReader::read() {
  using Shared = PageWriter::Shared;
  if (!open() || page_->magic.load(std::memory_order_acquire) != page_magic) return std::nullopt;
  auto body = std::make_unique<PageWriter::Body>();
  const bool alive = writer_lives();  // before reading: what a writer that is gone has left is its last word
  // The writer holds one copy at a time, and for less than a microsecond: a second look suffices unless it is very busy.
  for (int attempt = 0;; ++attempt) {
    const Shared::Copy& copy = page_->copies[static_cast<std::size_t>(attempt % 2)];
    const std::uint64_t before = copy.version.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < Shared::words; ++i) {
      const std::uint64_t word = copy.body[i].load(std::memory_order_relaxed);
      std::memcpy(reinterpret_cast<std::byte*>(body.get()) + i * 8, &word, 8);
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && before == copy.version.load(std::memory_order_relaxed)) break;
  }

  PageView view;
  view.rank = body->rank;
  view.pid = body->pid;
  view.pid_namespace = body->pid_namespace;
  view.created_ns = body->created_ns;
  view.alive = alive || body->locked == 0;
  view.phase = body->phase;
  view.step = body->step;
  view.phase_since_ns = body->phase_since_ns;
  view.progress_ns = body->progress_ns;
  view.failure = body->failure;
  view.failure_code = body->failure_code;
  view.failure_ns = body->failure_ns;
  view.notice = body->notice;
  view.notice_ns = body->notice_ns;
  const std::uint64_t kept = std::min<std::uint64_t>(body->stamped, operations_kept);
  for (std::uint64_t i = body->stamped - kept; i < body->stamped; ++i) view.operations.push_back(body->operations[i % operations_kept]);
  return view;
}

}  // namespace lockstep::journal
