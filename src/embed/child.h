// A `lockstep` that was started from here: its standard output line by line, its standard error as one text.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/file/descriptor.h"

namespace lockstep::embed {

// In a process group of its own: a terminal's Ctrl-C goes to whoever embeds it, who decides what becomes of it. For one thread at a time.
// Ended and waited for at the latest with its owner.
class Child {
 public:
  // program: empty for LOCKSTEP_PROGRAM or PATH. One that cannot be started has ended, with exit code 127 and the reason as its errors.
  // Its standard input says nothing, and ends with this object or this process, were that killed.
  Child(std::string program, std::vector<std::string> arguments);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Nothing: none came within timeout_s (negative: forever), or there will be none any more.
  std::optional<std::string> line(double timeout_s);
  bool ended() const { return ended_; }  // its output, read to the end
  void send(int number) const;
  int wait();            // its exit code, 128 + signal where one ended it
  std::string errors();  // what it wrote to standard error so far

 private:
  bool has_bytes(double timeout_s) const;

  pid_t pid_ = -1;
  std::optional<int> code_;
  base::Descriptor in_, out_, errors_;
  std::string rest_, why_not_;
  bool ended_ = false;
};

}  // namespace lockstep::embed
