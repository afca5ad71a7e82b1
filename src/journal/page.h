// A rank's page in shared memory: what it is doing right now, for `lockstep` to compare across ranks.
// One writer process (any of its threads), any number of readers. Readers never block the writer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"

namespace lockstep::journal {

enum class Phase : std::uint32_t {
  starting,
  connecting,
  building,
  loading,  // weights or a checkpoint
  reading_data,
  forward,
  backward,
  reducing,
  updating,
  evaluating,
  saving,
  sampling,
  finishing,
  done,
};
std::string_view name_of(Phase phase);   // "reading_data", "forward": for switches and files
std::string_view describe(Phase phase);  // after "rank 5 is": "reading data", "waiting for gradients", ...
// Phases that may take long by their nature; the stall watch leaves them alone.
bool may_take_long(Phase phase);

enum class OperationState : std::uint32_t { none, issued, waited_for, finished };

// One collective, as it is stamped when it is issued. Ranks are compared by (group, sequence): kind, what and bytes must then be the
// same on all ranks of the group, and a group's name must be one that only its members use. send and recv are not compared.
struct Operation {
  char group[24];          // "world"
  char kind[16];           // "all_reduce"
  char what[72];           // "gradients of block 14"
  std::uint64_t sequence;  // counts within the group
  std::uint64_t bytes;
  std::int64_t issued_ns;
  OperationState state;
  std::uint32_t unused;  // fills the struct to whole words
};

constexpr int operations_kept = 32;

// What the kernel says of a rank's process.
enum class ProcessState : std::uint32_t {
  running,          // or asleep, as a process may be
  stopped,          // by SIGSTOP, Ctrl-Z or a debugger: state T
  uninterruptible,  // in a system call that cannot be left, for want of a disk, a network file system or a driver: state D
  gone,
};

// A consistent copy of a page.
struct PageView {
  std::uint32_t rank = 0;
  std::uint32_t pid = 0;
  std::uint64_t pid_namespace = 0;               // that the pid means something in
  std::int64_t created_ns = 0;                   // when the page was made
  bool alive = true;                             // its writer still is; not a matter of pids, so it holds across containers too
  ProcessState process = ProcessState::running;  // where a launcher has looked
  std::int64_t process_since_ns = 0;             // uninterruptible: since when one of its threads has slept without a break
  Phase phase = Phase::starting;
  std::int64_t step = 0;              // 0 before the first
  std::int64_t phase_since_ns = 0;    // monotonic clock, comparable across processes of a machine
  std::int64_t progress_ns = 0;       // last time anything was written here
  std::string failure;                // first fatal error text of this rank, empty if none
  std::int32_t failure_code = 0;      // its exit code
  std::int64_t failure_ns = 0;        // when it was written
  std::string notice;                 // what people should know while it trains, the last of it; empty if nothing
  std::int64_t notice_ns = 0;         // when it was written
  std::vector<Operation> operations;  // newest last, at most operations_kept
};

// Writing costs well under a microsecond: a lock nobody else holds and two small copies.
class PageWriter {
 public:
  // Path empty: the page is private memory that nobody reads.
  PageWriter(const std::filesystem::path& path, int rank);
  // Leaves the file: whoever chose the path reads it after this process has died, and removes it.
  ~PageWriter();
  PageWriter(const PageWriter&) = delete;
  PageWriter& operator=(const PageWriter&) = delete;

  void set_phase(Phase phase, std::int64_t step);
  void note_progress();  // something moved, though phase and operations are the same
  // Returns the slot to mark when the operation is waited for or finished. Longer texts are cut.
  int stamp(std::string_view group, std::string_view kind, std::string_view what, std::uint64_t sequence, std::uint64_t bytes);
  // Does nothing if the slot has been given to a newer operation since.
  void mark(int slot, std::uint64_t sequence, OperationState state);
  void set_failure(std::string_view text, int exit_code);  // the first one wins
  // For words that have no other way to people, as while the disk is full; the last one wins.
  void set_notice(std::string_view text);

 private:
  struct Body;
  struct Shared;
  void publish(const void* begin, std::size_t bytes) LOCKSTEP_REQUIRES(mutex_);

  base::Mutex mutex_;
  std::unique_ptr<Body> body_ LOCKSTEP_POINTS_TO_GUARDED_BY(mutex_);
  Shared* shared_ = nullptr;
  int file_ = -1;  // holds the lock by which readers know that we live
  friend class PageReader;
};

class PageReader {
 public:
  explicit PageReader(std::filesystem::path path);
  ~PageReader();
  PageReader(const PageReader&) = delete;
  PageReader& operator=(const PageReader&) = delete;
  // Empty while the rank has not made its page. Consistent even if the writer was killed in the middle of a write. A page that was made
  // anew at the path takes the place of the one before; one that was removed stays readable.
  std::optional<PageView> read();

 private:
  bool open();
  void close();
  bool writer_lives() const;
  std::filesystem::path path_;
  const PageWriter::Shared* page_ = nullptr;
  int file_ = -1;
  std::uint64_t inode_ = 0, device_ = 0;
};

}  // namespace lockstep::journal
