// Turns of staged bytes on their way from the thread that copies to the thread that writes. Two buffers: one is filled while the other is
// written, and whoever copies waits for the disk here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "rank/checkpoint/staging.h"

namespace lockstep::checkpoint {

class Handover {
 public:
  static constexpr std::size_t buffers = 2;

  // For the one who copies, turn by turn.
  // Waits until turn - 2, whose buffer turn i takes, is written. False: the writer has given up, and nothing more is needed.
  bool wait_for_room();
  void give(std::vector<StagedRange> turn);
  void fail(std::string reason);  // no more will come

  // For the one who writes. The next turn; the one before it is done with. Throws where the other side failed.
  std::vector<StagedRange> take();
  void close();  // nothing more is taken

 private:
  base::Mutex mutex_;
  base::Condition changed_;
  std::deque<std::vector<StagedRange>> waiting_ LOCKSTEP_GUARDED_BY(mutex_);
  std::size_t given_ LOCKSTEP_GUARDED_BY(mutex_) = 0, taken_ LOCKSTEP_GUARDED_BY(mutex_) = 0, written_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::optional<std::string> failure_ LOCKSTEP_GUARDED_BY(mutex_);
  bool closed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep::checkpoint
