// Appends to a file and never fails: what the disk does not take waits in memory and goes out later, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/mutex.h"

namespace lockstep::base {

// For what people read about a run (metrics, logs, scalars): a full disk must not end the run for a line of these. Any thread.
class PatientWriter {
 public:
  struct Options {
    std::size_t capacity_bytes = 16u << 20;  // of pieces that wait; beyond it the oldest go, whole, and are counted
    double retry_s = 1;                      // a disk that refused is left alone for so long
  };
  // What a call has changed.
  struct News {
    enum class Kind { none, began_to_wait, caught_up } kind = Kind::none;
    std::string error = {};    // began_to_wait: why
    std::int64_t waited = 0;   // caught_up: pieces that had to wait and are written now
    std::int64_t dropped = 0;  // caught_up: pieces that no room was left for
  };
  // `open` is called by the first write() or flush(), and again later where it threw a UserError.
  PatientWriter(std::function<std::unique_ptr<FileAppender>()> open, Options options);

  News write(std::string_view piece);
  // Tries once more, however recent the last try was.
  News flush();
  std::int64_t waiting() const;  // pieces

 private:
  News drain(bool at_once) LOCKSTEP_REQUIRES(mutex_);

  mutable Mutex mutex_;
  const std::function<std::unique_ptr<FileAppender>()> open_;
  const Options options_;
  std::unique_ptr<FileAppender> file_ LOCKSTEP_GUARDED_BY(mutex_);
  std::deque<std::string> pieces_ LOCKSTEP_GUARDED_BY(mutex_);
  std::size_t first_done_ LOCKSTEP_GUARDED_BY(mutex_) = 0;   // bytes of the first piece that are in the file already
  std::size_t bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;        // of all pieces
  std::int64_t refused_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // when the disk last refused; 0: it has not
  std::int64_t waited_ LOCKSTEP_GUARDED_BY(mutex_) = 0, dropped_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep::base
