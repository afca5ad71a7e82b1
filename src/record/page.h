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

namespace lockstep::record {

enum class Phase : std::uint32_t {
  starting,
  connecting,
  building,
  loading,     // weights or a checkpoint
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
std::string_view describe(Phase phase);  // "reading data", "waiting for gradients", ...
// Phases that may take long by their nature; the stall watch leaves them alone.
bool may_take_long(Phase phase);

enum class OperationState : std::uint32_t { none, issued, waited_for, finished };

// One collective, as it is stamped when it is issued.
struct Operation {
  char group[24];  // "world"
  char kind[16];   // "all_reduce"
  char what[72];   // "gradients of block 14"
  std::uint64_t sequence;  // counts within the group
  std::uint64_t bytes;
  std::int64_t issued_ns;
  OperationState state;
};

constexpr int operations_kept = 32;

// A consistent copy of a page.
struct PageView {
  std::uint32_t rank;
  std::uint32_t pid;
  Phase phase;
  std::int64_t step;            // 0 before the first
  std::int64_t phase_since_ns;  // monotonic clock, comparable across processes of a machine
  std::int64_t progress_ns;     // last time anything was written here
  std::string failure;          // first fatal error text of this rank, empty if none
  std::int32_t failure_code;    // its exit code
  std::vector<Operation> operations;  // newest last, at most operations_kept
};

class PageWriter {
 public:
  // Path empty: the page is private memory that nobody reads.
  PageWriter(const std::filesystem::path& path, int rank);
  ~PageWriter();
  PageWriter(const PageWriter&) = delete;

  void set_phase(Phase phase, std::int64_t step);
  // Returns the slot to mark when the operation is waited for or finished.
  int stamp(std::string_view group, std::string_view kind, std::string_view what, std::uint64_t sequence, std::uint64_t bytes);
  void mark(int slot, std::uint64_t sequence, OperationState state);
  void set_failure(std::string_view text, int exit_code);  // the first one wins

 private:
  struct Layout;
  Layout* page_ = nullptr;
  bool shared_ = false;
};

class PageReader {
 public:
  explicit PageReader(const std::filesystem::path& path);
  ~PageReader();
  PageReader(const PageReader&) = delete;
  // Empty while the rank has not made its page.
  std::optional<PageView> read();

 private:
  std::filesystem::path path_;
  const void* page_ = nullptr;
};

}  // namespace lockstep::record
