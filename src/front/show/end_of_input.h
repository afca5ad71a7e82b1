// `--stop-with-stdin`: a run that ends with whoever holds the other end of its standard input, however that ends.
#pragma once

#include <thread>

#include "base/file/descriptor.h"

namespace lockstep::show {

// While it lives, the end of standard input is a SIGTERM to this process: a pipe's writer is gone, were it by SIGKILL. What is written
// there is read and dropped.
class EndOfInput {
 public:
  EndOfInput();
  ~EndOfInput();
  EndOfInput(const EndOfInput&) = delete;
  EndOfInput& operator=(const EndOfInput&) = delete;

 private:
  void wait() const;

  base::Descriptor closing_;
  std::thread thread_;
};

}  // namespace lockstep::show
