// The wish that a job ends, on its way from whoever has it to the thread that runs the job.
#pragma once

#include <span>

#include "base/file/descriptor.h"

namespace lockstep::launch {

class StopWish {
 public:
  // UserError where the process has no file descriptors left.
  StopWish();
  StopWish(const StopWish&) = delete;
  StopWish& operator=(const StopWish&) = delete;

  // From any thread, or from a signal handler. `signal`: what asks; a job asked twice ends at once.
  void ask(int signal) const;
  // Whether wait() would return a wish now.
  bool is_asked() const;
  // The next wish, or 0 after so many seconds, or sooner where one of these processes has ended (Child::end_descriptor; -1 is none).
  int wait(double seconds, std::span<const int> ends = {}) const;

 private:
  base::Pipe pipe_;  // a pipe: one byte a wish
};

}  // namespace lockstep::launch
